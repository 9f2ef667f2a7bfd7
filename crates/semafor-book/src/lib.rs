//! The book in `docs/`: its examples in Rust are doctests of this crate, and `cargo xtask docs` builds it.
//!
//! The commands it shows are run by `semafor-cli/tests/documents.rs`, its examples in Python by
//! `python/tests/test_documentation.py`.

/// Makes doctests of documents, and lists them.
macro_rules! documents {
    ($($name:ident: $path:literal,)*) => {
        /// The paths of the documents whose examples are compiled here, relative to the project's folder.
        pub const DOCUMENTS: &[&str] = &[$($path),*];

        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../", $path))]
            mod $name {}
        )*
    };
}

documents! {
    readme: "README.md",
    benchmarks: "docs/src/benchmarks.md",
    command: "docs/src/command.md",
    comparison: "docs/src/comparison.md",
    effects: "docs/src/effects.md",
    guide_fleet: "docs/src/guide/fleet.md",
    guide_machine: "docs/src/guide/machine.md",
    guide_memory: "docs/src/guide/memory.md",
    homes: "docs/src/homes.md",
    homes_local: "docs/src/homes/local.md",
    homes_memory: "docs/src/homes/memory.md",
    homes_redis: "docs/src/homes/redis.md",
    how_it_is_tested: "docs/src/how-it-is-tested.md",
    how_it_works: "docs/src/how-it-works.md",
    introduction: "docs/src/introduction.md",
    migration: "docs/src/migration.md",
    operations: "docs/src/operations.md",
    pipeline: "docs/src/pipeline.md",
    promises: "docs/src/promises.md",
    purge: "docs/src/purge.md",
    python: "docs/src/python.md",
}
