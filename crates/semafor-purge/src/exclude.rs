//! Patterns of excluded entries: they are not entered and not removed, and their directory stays.
//!
//! `*` and `?` match any characters except a slash, `[a-z]` and `[!a-z]` match one character, `**` also matches
//! slashes; a backslash quotes the next character. Names are bytes and may be invalid UTF-8.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::InvalidPattern;

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pieces: Vec<Piece>,
    /// A pattern with a slash or `**` is matched against the path, not only the name.
    is_path: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Byte(u8),
    /// `?`
    Any,
    /// `[…]`
    OneOf {
        ranges: Vec<(u8, u8)>,
        is_negated: bool,
    },
    /// `*`
    Many,
    /// `**`
    Everything,
    /// `**/`: any number of directories, or none.
    Directories,
}

impl Pattern {
    pub(crate) fn parse(text: &OsStr) -> Result<Self, InvalidPattern> {
        let invalid = |why| InvalidPattern { pattern: text.to_string_lossy().into_owned(), why };
        let mut rest = text.as_bytes();
        rest = rest.strip_prefix(b"./").unwrap_or(rest);
        rest = rest.strip_suffix(b"/").unwrap_or(rest);
        if rest.is_empty() {
            return Err(invalid("it is empty"));
        }
        if rest.starts_with(b"/") {
            return Err(invalid("paths are relative to the directory to purge"));
        }
        let mut pieces = Vec::new();
        while let Some((&first, after)) = rest.split_first() {
            let is_part_start = matches!(pieces.last(), None | Some(Piece::Byte(b'/') | Piece::Directories));
            let (piece, after) = match first {
                b'*' if is_part_start && after.starts_with(b"*/") => (Piece::Directories, &after[2..]),
                b'*' if after.starts_with(b"*") => (Piece::Everything, &after[1..]),
                b'*' => (Piece::Many, after),
                b'?' => (Piece::Any, after),
                b'[' => one_of(after).ok_or_else(|| invalid("a `[` has no `]`"))?,
                b'\\' => match after.split_first() {
                    Some((&literal, after)) => (Piece::Byte(literal), after),
                    None => return Err(invalid("it ends in a backslash")),
                },
                literal => (Piece::Byte(literal), after),
            };
            pieces.push(piece);
            rest = after;
        }
        let is_path = pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Byte(b'/') | Piece::Everything | Piece::Directories));
        Ok(Self { pieces, is_path })
    }

    /// True if the pattern needs the path.
    pub(crate) fn is_path(&self) -> bool {
        self.is_path
    }

    /// True if the pattern matches this name or relative path.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        // Backtracks only to the last star, or, if that fails, to the last one that crosses slashes.
        let (mut piece, mut at) = (0, 0);
        let mut star = None;
        let mut wide = None;
        loop {
            let next = text.get(at).copied();
            match (self.pieces.get(piece), next) {
                (Some(Piece::Many), _) => {
                    star = Some((piece + 1, at));
                    piece += 1;
                    continue;
                }
                (Some(Piece::Everything | Piece::Directories), _) => {
                    (star, wide) = (None, Some((piece + 1, at)));
                    piece += 1;
                    continue;
                }
                (Some(expected), Some(byte)) if expected.is(byte) => {
                    piece += 1;
                    at += 1;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            if let Some((after, from)) = star
                && text.get(from).is_some_and(|byte| *byte != b'/')
            {
                star = Some((after, from + 1));
                (piece, at) = (after, from + 1);
            } else if let Some((after, from)) = wide {
                let from = match self.pieces[after - 1] {
                    Piece::Directories => match text[from..].iter().position(|byte| *byte == b'/') {
                        Some(slash) => from + slash + 1,
                        None => return false,
                    },
                    _ if from < text.len() => from + 1,
                    _ => return false,
                };
                (star, wide) = (None, Some((after, from)));
                (piece, at) = (after, from);
            } else {
                return false;
            }
        }
    }
}

/// Parses the text after a `[`, up to its `]`.
fn one_of(text: &[u8]) -> Option<(Piece, &[u8])> {
    let (is_negated, text) = match text.first()? {
        b'!' | b'^' => (true, &text[1..]),
        _ => (false, text),
    };
    // A `]` right after the `[` is a literal.
    let end = text.iter().skip(1).position(|byte| *byte == b']')? + 1;
    let (mut inside, after) = (&text[..end], &text[end + 1..]);
    let mut ranges = Vec::new();
    while let Some((&low, rest)) = inside.split_first() {
        match rest {
            [b'-', high, rest @ ..] => {
                ranges.push((low, *high));
                inside = rest;
            }
            _ => {
                ranges.push((low, low));
                inside = rest;
            }
        }
    }
    Some((Piece::OneOf { ranges, is_negated }, after))
}

impl Piece {
    fn is(&self, byte: u8) -> bool {
        match self {
            Self::Byte(expected) => *expected == byte,
            Self::Any => byte != b'/',
            Self::OneOf { ranges, is_negated } => {
                byte != b'/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte)) != *is_negated
            }
            Self::Many | Self::Everything | Self::Directories => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::parse(OsStr::new(pattern)).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn star_matches_within_a_name_and_double_star_across_slashes() {
        for (pattern, text) in [
            ("cache", "cache"),
            ("*.tmp", "a.tmp"),
            ("*.tmp", ".tmp"),
            ("a*b*c", "aXbXbXc"),
            ("a/*/c", "a/b/c"),
            ("**/keep", "keep"),
            ("**/keep", "a/b/keep"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("a/**", "a/b/c"),
            ("**", "a/b"),
            ("a**c", "a/b/c"),
            ("**/*.d/x?", "a/b/c.d/x1"),
            ("[a-c]?", "b1"),
            ("[!a-c]", "d"),
            ("[]x]", "]"),
            ("[a-]", "-"),
            (r"\*", "*"),
            ("./a/", "a"),
            ("größe", "größe"),
        ] {
            assert!(matches(pattern, text), "{pattern} matches {text}");
        }
        for (pattern, text) in [
            ("cache", "cache2"),
            ("cache", "a/cache"),
            ("*", "a/b"),
            ("a/*", "a/b/c"),
            ("?", "/"),
            ("[!a]", "/"),
            ("**/keep", "a/keeper"),
            ("**/keep", "akeep"),
            ("a/**/z", "a/bz"),
            ("[a-c]", "d"),
            (r"\*", "x"),
            ("a", ""),
        ] {
            assert!(!matches(pattern, text), "{pattern} does not match {text}");
        }
    }

    #[test]
    fn matching_with_many_stars_terminates() {
        let stars = "*a".repeat(30);
        assert!(!matches(&stars, &"a".repeat(29)));
        assert!(!matches(&format!("{stars}b"), &"a".repeat(200)));
        assert!(!matches(&"**/x/".repeat(20), &"x/y/".repeat(19)));
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["", "/", "/etc", "[a", "[", "a\\"] {
            assert!(Pattern::parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
