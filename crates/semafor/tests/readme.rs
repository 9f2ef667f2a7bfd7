//! What the README shows is what is there to run.

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_shows_its_examples_word_for_word() {
    for example in [include_str!("../examples/images.rs"), include_str!("../examples/tour.rs")] {
        let (_title, code) = example.split_once("\n\n").expect("a title, then the code");
        assert!(README.contains(&format!("```rust\n{code}```\n")), "not in the README:\n{code}");
    }
}
