//! `cargo xtask docs`: builds the book and checks the links of all documents.

mod links;
mod warnings;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mdbook_driver::MDBook;
use warnings::Warnings;

/// Documents outside of the book. Their links are checked as well.
const OTHERS: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "python/README.md"];

fn main() -> ExitCode {
    let (built, warnings) = Warnings::of(build);
    let built =
        if warnings.is_empty() { built } else { Err(format!("mdBook warns:\n{}", warnings.join("\n"))) };
    match built {
        Ok(built) => {
            println!("{built}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let book =
        MDBook::load(root.join("docs")).map_err(|error| format!("the book can't be read: {error:#}"))?;
    let mut documents: Vec<_> = OTHERS.iter().map(|path| root.join(path)).collect();
    let pages: Vec<PathBuf> = book
        .book
        .iter()
        .filter_map(|item| match item {
            mdbook_driver::book::BookItem::Chapter(chapter) => chapter.source_path.clone(),
            _ => None,
        })
        .map(|path| root.join("docs/src").join(path))
        .collect();
    unlisted(&root.join("docs/src"), &pages)?;
    documents.extend(pages.iter().cloned());
    let wrong = links::check(&documents)?;
    if !wrong.is_empty() {
        return Err(format!("links that lead nowhere:\n{}", wrong.join("\n")));
    }
    book.build().map_err(|error| format!("the book can't be built: {error:#}"))?;
    Ok(format!("{} pages, their links and those of {} other documents", pages.len(), OTHERS.len()))
}

/// A page that the summary does not list would be missing from the book.
fn unlisted(folder: &Path, pages: &[PathBuf]) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|error| format!("can't read {}: {error}", folder.display()))? {
        let path = entry.map_err(|error| format!("can't read {}: {error}", folder.display()))?.path();
        if path.is_dir() {
            unlisted(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md")
            && path.file_name().is_some_and(|name| name != "SUMMARY.md")
            && !pages.contains(&path)
        {
            return Err(format!("docs/src/SUMMARY.md does not list {}", path.display()));
        }
    }
    Ok(())
}
