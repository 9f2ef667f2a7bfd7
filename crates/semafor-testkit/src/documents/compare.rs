use std::sync::LazyLock;

use regex::Regex;

/// What differs from run to run, and what stands for it in a comparison. The order matters.
static VARYING: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
    let rule = |pattern, stands_for| (Regex::new(pattern).expect("a valid pattern"), stands_for);
    [
        rule(r"\b[0-9a-f]{4,}-\d+-[0-9a-f]+\b", "<id>"),
        rule(r"\b(pid|process) \d+\b", "$1 <number>"),
        rule(r"\b\d+(\.\d+)?(ns|µs|ms|s|m|h|d)( \d+(s|m|h))?\b", "<time>"),
        rule(r"\b\d{3,}\b", "<number>"),
        rule(r"\s+", " "),
    ]
});

fn normal(line: &str) -> String {
    VARYING.iter().fold(line.trim().to_owned(), |line, (pattern, stands_for)| {
        pattern.replace_all(&line, *stands_for).into_owned()
    })
}

/// True if a command printed what the document shows. See the [module](super) for what may differ.
pub fn matches(shown: &[String], printed: &str) -> bool {
    let shown: Vec<_> = shown.iter().map(|line| normal(line)).collect();
    let printed: Vec<_> = printed.trim_end().lines().map(normal).collect();
    let shown: Vec<_> = shown.iter().map(String::as_str).collect();
    let printed: Vec<_> = printed.iter().map(String::as_str).collect();
    wildcard(trim_end(&shown), &printed, |line| *line == "…", |shown, printed| is_line(shown, printed))
}

fn trim_end<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    &lines[..end]
}

fn is_line(shown: &str, printed: &str) -> bool {
    let (shown, printed): (Vec<_>, Vec<_>) = (shown.chars().collect(), printed.chars().collect());
    wildcard(&shown, &printed, |letter| *letter == '…', |shown, printed| shown == printed)
}

/// Compares two sequences, the first of which may have items that stand for any number of others.
fn wildcard<T>(
    shown: &[T],
    printed: &[T],
    is_any: impl Fn(&T) -> bool,
    is_same: impl Fn(&T, &T) -> bool,
) -> bool {
    let (mut at, mut read) = (0, 0);
    // After the last wildcard, and how much it has taken: where to go on if what follows does not match.
    let mut again = None;
    while read < printed.len() {
        if shown.get(at).is_some_and(&is_any) {
            at += 1;
            again = Some((at, read));
        } else if shown.get(at).is_some_and(|shown| is_same(shown, &printed[read])) {
            at += 1;
            read += 1;
        } else if let Some((after, taken)) = again {
            (at, read) = (after, taken + 1);
            again = Some((after, taken + 1));
        } else {
            return false;
        }
    }
    shown[at..].iter().all(is_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shown_as(printed: &str, shown: &str) -> bool {
        matches(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), printed)
    }

    #[test]
    fn what_varies_is_equal_and_what_does_not_is_not() {
        assert!(is_shown_as("waiting 1.5s (pid 12)\n", "waiting 4m 3s (pid 4711)"));
        assert!(is_shown_as("NAME  HELD\nx      1/2\n", "NAME    HELD\nx        1/2"));
        assert!(is_shown_as("8a3deaa0-0-6605f125b82c1", "1c2de3f0-11-2a"));
        assert!(!is_shown_as("1 of 2 held", "2 of 2 held"));
        assert!(!is_shown_as("a\nb\n", "a"));
        assert!(!is_shown_as("a\n", "a\nb"));
        assert!(!is_shown_as("", "a"));
        assert!(is_shown_as("", ""));
    }

    #[test]
    fn an_ellipsis_stands_for_anything() {
        assert!(is_shown_as("one two three", "one … three"));
        assert!(is_shown_as("one\ntwo\nthree\nfour", "one\n…\nfour"));
        assert!(is_shown_as("one\nfour", "one\n…\nfour"));
        assert!(is_shown_as("aXbXc", "a…Xc"));
        assert!(!is_shown_as("one\ntwo", "one\n…\nfour"));
        assert!(!is_shown_as("one two", "one … three"));
    }
}
