//! Links between documents: the file must exist, and so must the heading.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The links and headings of one document.
struct Document {
    path: PathBuf,
    links: Vec<String>,
    anchors: Vec<String>,
}

/// Lists the links of these documents that lead nowhere. Links to other sites are not followed.
pub(crate) fn check(paths: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut documents = HashMap::new();
    for path in paths {
        let text =
            fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))?;
        let path = canonical(path)?;
        documents.insert(path.clone(), read(path, &text));
    }
    let mut wrong = Vec::new();
    for document in documents.values() {
        for link in &document.links {
            if let Some(reason) = problem(document, link, &documents) {
                wrong.push(format!("  {}: {link}: {reason}", document.path.display()));
            }
        }
    }
    wrong.sort_unstable();
    Ok(wrong)
}

fn canonical(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("can't find {}: {error}", path.display()))
}

fn problem(from: &Document, link: &str, documents: &HashMap<PathBuf, Document>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = from.path.parent().unwrap_or(Path::new(""));
    let target = if path.is_empty() { Ok(from.path.clone()) } else { folder.join(path).canonicalize() };
    let Ok(target) = target else { return Some("there is no such file".into()) };
    let is_known = |document: &Document| document.anchors.iter().any(|known| known == anchor);
    match documents.get(&target) {
        _ if anchor.is_empty() => None,
        Some(document) if is_known(document) => None,
        Some(_) => Some("there is no such heading".into()),
        None => Some("headings of this file are not checked".into()),
    }
}

fn read(path: PathBuf, text: &str) -> Document {
    let (mut links, mut anchors) = (Vec::new(), Vec::new());
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => anchors.extend(heading.take().map(|text| anchor(&text))),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    Document { path, links, anchors }
}

/// The anchor of a heading, as mdBook and the usual forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_listed() {
        let folder = std::env::temp_dir().join(format!("semafor-book-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (a, b) = (folder.join("a.md"), folder.join("b.md"));
        fs::write(&a, "# `run` and more\n[b](b.md#it-is-here) [none](c.md) [x](https://example.com/) [up](#run-and-more)\n")
            .expect("a file");
        fs::write(&b, "## It is here!\n[a](a.md#nowhere) ![picture](p.svg)\n").expect("a file");
        let wrong = check(&[a, b]).expect("both can be read");
        fs::remove_dir_all(&folder).expect("it is ours");
        let ends: Vec<_> =
            wrong.iter().map(|line| line.split_once("md: ").map_or("", |(_, rest)| rest)).collect();
        assert_eq!(
            ends,
            [
                "c.md: there is no such file",
                "a.md#nowhere: there is no such heading",
                "p.svg: there is no such file"
            ]
        );
    }
}
