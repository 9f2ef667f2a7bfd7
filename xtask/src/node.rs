//! Packages from npm, to measure against.

use std::path::PathBuf;

use crate::shell::{command, probe, root, run};

/// A folder whose `node_modules` has these packages, kept for the next run.
pub(crate) fn folder_with(packages: &[&str]) -> Result<PathBuf, String> {
    for program in ["node", "npm"] {
        probe(&mut command(program, &["--version"])).ok_or(format!("there is no {program}"))?;
    }
    let folder = root().join("target/bench/node");
    let there = |name: &&str| folder.join("node_modules").join(name).join("package.json").is_file();
    if !packages.iter().all(there) {
        println!("==> installing {} from npm into {}", packages.join(", "), folder.display());
        // Without the prefix npm takes the nearest folder above that looks like a package.
        let install = ["install", "--no-audit", "--no-fund", "--prefix"];
        run(command("npm", &install).arg(&folder).args(packages))
            .map_err(|reason| format!("npm failed: {reason}"))?;
    }
    Ok(folder)
}
