//! The commands in README and book print what is shown there.

use semafor_testkit::documents::{Shell, all, blocks, read};

/// A test for each document with `console` blocks, and one that no such document is missing.
macro_rules! documents {
    ($($test:ident: $document:literal,)*) => {
        $(
            #[test]
            fn $test() {
                Shell::check(env!("CARGO_BIN_EXE_semafor"), $document);
            }
        )*

        #[test]
        fn every_document_with_commands_is_tested() {
            let has_commands = |path: &String| blocks(&read(path)).iter().any(|block| block.kind == "console");
            assert_eq!(all().into_iter().filter(has_commands).collect::<Vec<_>>(), [$($document),*]);
        }
    };
}

documents! {
    readme: "README.md",
    command: "docs/src/command.md",
    effects: "docs/src/effects.md",
    guide_fleet: "docs/src/guide/fleet.md",
    guide_machine: "docs/src/guide/machine.md",
    guide_memory: "docs/src/guide/memory.md",
    homes_local: "docs/src/homes/local.md",
    migration: "docs/src/migration.md",
    operations: "docs/src/operations.md",
    purge: "docs/src/purge.md",
}

/// Rust blocks are doctests of `semafor-book`, Python blocks are run by `python/tests/test_documentation.py`, and a `text` block
/// is the output of the Python block before it. A `diagram` is no code.
#[test]
fn every_code_block_is_of_a_kind_that_is_tested() {
    let kinds = ["console", "diagram", "python", "rust", "rust,no_run", "text"];
    for document in all() {
        let mut last = String::new();
        for block in blocks(&read(&document)) {
            let (line, kind) = (block.line, block.kind);
            assert!(kinds.contains(&&*kind), "{document}:{line}: a block of the kind {kind:?} is not tested");
            assert!(
                kind != "text" || last == "python",
                "{document}:{line}: no Python block prints this text"
            );
            last = kind;
        }
    }
}
