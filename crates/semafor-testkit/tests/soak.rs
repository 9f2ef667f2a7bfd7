//! A short run of what `cargo xtask soak` does for hours.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Real processes share semaphores while all kinds of faults happen: no rule is broken, and nothing is left.
#[test]
fn processes_keep_the_rules_whatever_goes_wrong() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["--seconds", "15", "--folder"]).arg(folder.path());
    if let Some(python) = std::env::var_os("SEMAFOR_WIRE_PYTHON") {
        soak.arg("--python").arg(python);
    }
    let output = soak.output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);

    let text = fs::read_to_string(folder.path().join("soak.json")).expect("it writes its numbers");
    let numbers: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(numbers["violations"], 0);
    let sites = numbers["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 4);
    assert!(sites.iter().all(|site| site["grants"].as_u64() > Some(0)), "{sites:?}");
    let faults = numbers["faults"].as_object().expect("faults");
    assert!(faults.values().any(|times| times.as_u64() > Some(0)), "{faults:?}");
    let picture = fs::read_to_string(folder.path().join("soak.svg")).expect("it draws a picture");
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
}
