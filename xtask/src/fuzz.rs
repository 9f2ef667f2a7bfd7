//! The targets of `semafor-testkit`'s fuzz module with libFuzzer, which is guided by coverage. Works with a stable
//! compiler: no sanitizer is needed, because the targets check themselves.

use std::path::Path;
use std::process::Command;

use crate::args::Args;
use crate::shell::{self, Failure, cargo, command, read, root, step};

/// As `cargo fuzz run --sanitizer none` sets them.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 --cfg fuzzing";

const MEMORY_MB: u32 = 2048;
const SECONDS_PER_INPUT: u32 = 30;

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let minutes = args.number("--minutes")?.unwrap_or(3);
    let chosen = args.words()?;
    let targets = targets(&root().join("fuzz/fuzz_targets"));
    if let Some(unknown) = chosen.iter().find(|name| !targets.contains(name)) {
        return Err(Failure::Usage(format!(
            "there is no target `{unknown}`. There are {}",
            targets.join(", ")
        )));
    }
    let host = step("building the targets", || {
        let host = host()?;
        let build =
            ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"];
        // With a target, the flags are not used for build scripts.
        shell::run(cargo(&build).args(["--target", &host]).env("RUSTFLAGS", COVERAGE))?;
        Ok(host)
    })?;
    let targets = if chosen.is_empty() { targets } else { chosen };
    targets.iter().try_for_each(|target| {
        step(&format!("{target}, {minutes} minutes"), || {
            shell::run(&mut search(target, &host, minutes)?).map_err(|reason| {
                format!(
                    "{reason}. The input is in target/fuzz/inputs: repair the fault, and keep the input in \
                     crates/semafor-testkit/corpus/{target} under a name that says what it shows"
                )
            })
        })
    })
}

/// Finds new inputs in `target/fuzz/inputs/TARGET`, which the next search starts from.
fn search(target: &str, host: &str, minutes: u32) -> Result<Command, String> {
    let inputs = root().join("target/fuzz/inputs").join(target);
    std::fs::create_dir_all(&inputs)
        .map_err(|error| format!("can't create {}: {error}", inputs.display()))?;
    let program = root().join("target/fuzz").join(host).join("release").join(target);
    let mut search = command(program, &["-print_final_stats=1", "-max_len=8192"]);
    search.arg(format!("-max_total_time={}", minutes.saturating_mul(60)));
    search.arg(format!("-rss_limit_mb={MEMORY_MB}")).arg(format!("-timeout={SECONDS_PER_INPUT}"));
    search.arg(format!("-artifact_prefix={}-", inputs.display()));
    search.arg(inputs).arg(root().join("crates/semafor-testkit/corpus").join(target));
    Ok(search)
}

/// The names of the programs.
fn targets(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

fn host() -> Result<String, String> {
    let version = read(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say what machine it is for".to_owned())
}
