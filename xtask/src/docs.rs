//! The book.

use crate::shell::{self, Failure, cargo, root, step};

pub(crate) fn run() -> Result<(), Failure> {
    build()?;
    println!("open {}", root().join("target/book/index.html").display());
    Ok(())
}

/// Builds the book into `target/book`, and checks the links of all documents. A warning of mdBook's is an error.
pub(crate) fn build() -> Result<(), Failure> {
    step("the book", || shell::run(&mut cargo(&["run", "--quiet", "-p", "semafor-book"])))
}
