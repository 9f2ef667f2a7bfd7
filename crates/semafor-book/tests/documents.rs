//! No document is left out.

use semafor_book::DOCUMENTS;
use semafor_testkit::documents::{all, read};

#[test]
fn the_examples_of_every_document_are_compiled() {
    let mut compiled = DOCUMENTS.to_vec();
    compiled.push("docs/src/SUMMARY.md");
    compiled.sort_unstable();
    assert_eq!(all(), compiled);
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "README.md has {lines} lines, more than 200");
}
