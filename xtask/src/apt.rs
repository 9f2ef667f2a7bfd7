//! Packages of a Debian-like system.

use crate::shell::{command, probe, run};

/// Asks nothing, installs nothing extra, and waits while a fresh machine is still updating itself.
const INSTALL: [&str; 5] = ["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"];

/// Installs `package`, showing the commands.
pub(crate) fn install(package: &str) -> Result<(), String> {
    let remedy =
        |reason: String| format!("{reason}; install it yourself, as root: apt-get install {package}");
    let start = start_of_line(is_there("apt-get"), is_root(), is_there("sudo")).map_err(remedy)?;
    let apt = |words: &[&str]| {
        let line = [start, words].concat();
        println!("    {}", line.join(" "));
        run(&mut command(line[0], &line[1..]))
    };
    let install = [&INSTALL[..], &[package]].concat();
    apt(&install)
        .or_else(|_| {
            println!("    the lists of packages may be missing or old, fetching them");
            // A list that can't be fetched may not be the one we need.
            let _ = apt(&["update"]);
            apt(&install)
        })
        .map_err(|reason| remedy(format!("apt-get failed: {reason}")))
}

/// `env` because sudo does not pass our environment on.
fn start_of_line(apt: bool, root: bool, sudo: bool) -> Result<&'static [&'static str], String> {
    match (apt, root, sudo) {
        (false, _, _) => Err("there is no apt-get here".into()),
        (true, true, _) => Ok(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]),
        (true, false, true) => Ok(&["sudo", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]),
        (true, false, false) => Err("you are not root, and there is no sudo".into()),
    }
}

fn is_root() -> bool {
    probe(&mut command("id", &["-u"])).as_deref() == Some("0")
}

fn is_there(program: &str) -> bool {
    probe(&mut command(program, &["--version"])).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_is_used_only_if_needed() {
        assert_eq!(start_of_line(true, true, true).map(|line| line[0]), Ok("env"));
        assert_eq!(start_of_line(true, true, false).map(|line| line[0]), Ok("env"));
        assert_eq!(start_of_line(true, false, true).map(|line| line[0]), Ok("sudo"));
    }

    #[test]
    fn no_rights_or_no_apt_is_an_error() {
        assert!(start_of_line(true, false, false).is_err());
        assert!(start_of_line(false, true, true).is_err());
    }
}
