//! `completions` and `man`: generated from the definition of the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::{Code, Failure};
use crate::output::print;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "semafor", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(directory: Option<&Path>) -> Result<ExitCode, Failure> {
    match directory {
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory).map_err(|error| {
            Code::Usage.because(format!("can't write man pages to {}: {error}", directory.display()))
        })?,
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|error| Code::Unreachable.because(error.to_string()))?;
            print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
