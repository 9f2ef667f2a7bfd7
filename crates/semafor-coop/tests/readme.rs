//! The README shows the code of the example.

#[test]
fn the_readme_contains_the_example_word_for_word() {
    let (readme, story) = (include_str!("../../../README.md"), include_str!("../examples/story.rs"));
    let (_title, code) = story.split_once("\n\n").expect("a title, then the code");
    assert!(readme.contains(&format!("```rust,no_run\n{code}```\n")), "not in the README:\n{code}");
}
