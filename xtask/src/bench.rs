//! Ours beside the peers, in one run.

use crate::args::Args;
use crate::python::Venv;
use crate::shell::{self, Failure, cargo, command, probe, step};

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let area = args.next();
    args.finish()?;
    match area.as_deref() {
        Some("memory") => memory(),
        Some(other) => Err(Failure::Usage(format!("there is no benchmark `{other}`"))),
        None => Err(Failure::Usage("which benchmark? There is `memory`".into())),
    }
}

fn memory() -> Result<(), Failure> {
    print_machine();
    let python = Venv::prepare(&["asyncio-advanced-semaphores"])
        .inspect_err(|reason| eprintln!("WARNING: measuring without Python, {reason}"))
        .ok();
    step("memory benchmark", || {
        let mut bench = cargo(&["run", "--profile", "bench", "-p", "semafor-benchmarks"]);
        bench.args(["--bin", "bench-memory", "--", "target/bench/memory.json"]);
        if let Some(python) = &python {
            bench.env("SEMAFOR_BENCH_PYTHON", python.interpreter());
        }
        shell::run(&mut bench)
    })
}

/// Numbers mean little without the machine they come from.
fn print_machine() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    println!("cpu:   {}", model.map_or("unknown", |(_, model)| model));
    println!("cores: {}", std::thread::available_parallelism().map_or(1, usize::from));
    println!("rustc: {}", probe(&mut command("rustc", &["--version"])).unwrap_or("unknown".into()));
}
