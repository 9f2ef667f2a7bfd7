//! The README shows the examples that can be run.

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_shows_its_examples_word_for_word() {
    let examples = [
        include_str!("../examples/images.rs"),
        include_str!("../examples/tour.rs"),
        include_str!("../examples/fleet.rs"),
    ];
    for example in examples {
        let (_title, code) = example.split_once("\n\n").expect("a title, then the code");
        let is_there =
            ["rust", "rust,no_run"].iter().any(|kind| README.contains(&format!("```{kind}\n{code}```\n")));
        assert!(is_there, "not in the README:\n{code}");
    }
}
