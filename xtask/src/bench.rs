//! Measures semafor beside its peers, in one run.

use std::fmt::Display;
use std::path::PathBuf;

use crate::args::Args;
use crate::shell::{self, Failure, cargo, command, probe, root, step};
use crate::{node, package, python, tools};

const AREAS: &str = "`cli`, `coop`, `memory`, `purge`, `python` and `redis`";

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let runs = args.number("--runs")?.unwrap_or(1);
    let area = args.next();
    args.finish()?;
    if runs == 1 {
        return once(area.as_deref());
    }
    let mut files = Vec::new();
    for run in 1..=runs {
        once(area.as_deref())?;
        files.push(keep(area.as_deref().unwrap_or_default(), run)?);
    }
    step(&format!("the spread of {runs} runs"), || {
        let spread = [
            "run",
            "--quiet",
            "--profile",
            "bench",
            "-p",
            "semafor-benchmarks",
            "--bin",
            "bench-spread",
            "--",
        ];
        shell::run(cargo(&spread).args(&files))
    })
}

/// Keeps the rows of a run beside those of the next one.
fn keep(area: &str, run: u32) -> Result<PathBuf, Failure> {
    let folder = root().join("target/bench");
    let (from, to) = (folder.join(format!("{area}.json")), folder.join(format!("{area}-{run}.json")));
    step(&format!("run {run} is kept in {}", to.display()), || {
        std::fs::copy(&from, &to).map(drop).map_err(|error| format!("can't copy {}: {error}", from.display()))
    })?;
    Ok(to)
}

fn once(area: Option<&str>) -> Result<(), Failure> {
    match area {
        Some("cli") => cli(),
        Some("coop") => coop(),
        Some("memory") => memory(),
        Some("purge") => purge(),
        Some("python") => python(),
        Some("redis") => redis(),
        Some(other) => Err(Failure::Usage(format!("there is no benchmark `{other}`. There are {AREAS}"))),
        None => Err(Failure::Usage(format!("which benchmark? There are {AREAS}"))),
    }
}

fn cli() -> Result<(), Failure> {
    tools::ensure(tools::FLOCK)?;
    for (peer, tools) in [("GNU sem", tools::GNU_SEM), ("a Redis", tools::FOR_REDIS)] {
        // The benchmark detects by itself which tools are installed.
        or_without(peer, tools::ensure(tools));
    }
    let command = build_command()?;
    measure("cli", &[], &[("SEMAFOR_BENCH_COMMAND", Some(command))])
}

fn purge() -> Result<(), Failure> {
    for (peer, tools) in [("fd", tools::FD), ("FUSE", tools::FUSE)] {
        or_without(peer, tools::ensure(tools));
    }
    let command = build_command()?;
    measure("purge", &["--features", "purge"], &[("SEMAFOR_BENCH_COMMAND", Some(command))])
}

fn build_command() -> Result<PathBuf, Failure> {
    step("the command, as it is released", || {
        shell::run(&mut cargo(&["build", "--release", "-p", "semafor-cli"]))?;
        released("semafor")
    })
}

/// The path of a release build: beside the folder that xtask was built in.
fn released(program: &str) -> Result<PathBuf, String> {
    let ours = std::env::current_exe().map_err(|error| format!("the path of xtask is unknown: {error}"))?;
    let folder = ours.parent().ok_or("the path of xtask has no folder")?.with_file_name("release");
    Ok(folder.join(program))
}

fn coop() -> Result<(), Failure> {
    let python =
        or_without("doeff", python::with(&["doeff"])).or_else(|| or_without("Python", python::with(&[])));
    measure("coop", &[], &[("SEMAFOR_BENCH_PYTHON", python)])
}

fn memory() -> Result<(), Failure> {
    let python = or_without("Python", python::with(&["asyncio-advanced-semaphores"]));
    measure("memory", &[], &[("SEMAFOR_BENCH_PYTHON", python)])
}

fn python() -> Result<(), Failure> {
    tools::ensure(tools::FOR_REDIS)?;
    let peers = ["asyncio-advanced-semaphores", "doeff", "self-limiters"];
    let python = step("the Python package, as it is released", || {
        let mut python = package::with(&peers);
        for (last, peer) in peers.iter().enumerate().skip(1).rev() {
            python = python.or_else(|reason| {
                or_without(peer, Err::<(), _>(reason));
                package::with(&peers[..last])
            });
        }
        python
    })?;
    print_machine();
    step("python benchmark", || {
        shell::run(&mut command(&python, &["benchmarks/python/package.py", "target/bench/python.json"]))
    })
}

fn redis() -> Result<(), Failure> {
    tools::ensure(tools::FOR_REDIS)?;
    // A new Python is often out before self-limiters can be installed in it.
    let python = or_without("self-limiters", python::with(&["asyncio-advanced-semaphores", "self-limiters"]))
        .or_else(|| or_without("Python", python::with(&["asyncio-advanced-semaphores"])));
    let node = or_without("Node", node::folder_with(&["redis-semaphore", "ioredis"]));
    let peers = [("SEMAFOR_BENCH_PYTHON", python), ("SEMAFOR_BENCH_NODE_DIR", node)];
    measure("redis", &["--features", "redis"], &peers)
}

/// Measures `area` beside the peers that are available.
fn measure(area: &str, features: &[&str], peers: &[(&str, Option<PathBuf>)]) -> Result<(), Failure> {
    print_machine();
    step(&format!("{area} benchmark"), || {
        let mut bench = cargo(&["run", "--profile", "bench", "-p", "semafor-benchmarks"]);
        bench.args(features).args(["--bin", &format!("bench-{area}")]);
        bench.args(["--", &format!("target/bench/{area}.json")]);
        bench.envs(peers.iter().filter_map(|(variable, path)| Some((variable, path.as_ref()?))));
        shell::run(&mut bench)
    })
}

fn or_without<T, E: Display>(peer: &str, found: Result<T, E>) -> Option<T> {
    found.inspect_err(|reason| eprintln!("WARNING: measuring without {peer}: {reason}")).ok()
}

/// Numbers mean little without the machine they were measured on.
fn print_machine() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    println!("cpu:   {}", model.map_or("unknown", |(_, model)| model));
    println!("cores: {}", std::thread::available_parallelism().map_or(1, usize::from));
    println!("rustc: {}", probe(&mut command("rustc", &["--version"])).unwrap_or("unknown".into()));
}
