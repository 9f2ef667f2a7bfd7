//! Patches in the unified format. A hunk goes where its lines are, whatever the numbers in its header say.

/// What a patch does to one file.
pub(crate) struct FilePatch {
    /// From the root of the workspace.
    pub(crate) path: String,
    hunks: Vec<Hunk>,
}

#[derive(Default)]
struct Hunk {
    old: String,
    new: String,
}

/// The lines before the first file, and the changes of each file.
pub(crate) fn parse(text: &str) -> Result<(Vec<&str>, Vec<FilePatch>), String> {
    let mut lines = text.lines().peekable();
    let mut header = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with("--- ")) {
        header.push(line);
    }
    let mut files: Vec<FilePatch> = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("--- ") {
            let path = lines.next().and_then(|line| line.strip_prefix("+++ b/"));
            let path = path.ok_or_else(|| format!("no `+++ b/FILE` after `{line}`"))?;
            files.push(FilePatch { path: path.to_owned(), hunks: Vec::new() });
            continue;
        }
        let file = files.last_mut().ok_or("no file is named")?;
        if line.starts_with("@@") {
            file.hunks.push(Hunk::default());
            continue;
        }
        let hunk = file.hunks.last_mut().ok_or_else(|| format!("`{line}` is in no hunk"))?;
        // Editors and mail programs may have removed the space of an empty line.
        let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        if matches!(sign, " " | "-") {
            hunk.old.extend([rest, "\n"]);
        }
        if matches!(sign, " " | "+") {
            hunk.new.extend([rest, "\n"]);
        }
        if !matches!(sign, " " | "-" | "+") {
            return Err(format!("`{line}` is no line of a patch"));
        }
    }
    if files.is_empty() || files.iter().any(|file| file.hunks.is_empty()) {
        return Err("it changes nothing".into());
    }
    Ok((header, files))
}

impl FilePatch {
    /// The text with the change. Each hunk has to fit in exactly one place.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        let mut text = format!("\n{text}");
        for hunk in &self.hunks {
            let (old, new) = (format!("\n{}", hunk.old), format!("\n{}", hunk.new));
            // Two places may have a line break in common.
            let lines = text.match_indices('\n').map(|(at, _)| at);
            match lines.filter(|at| text[*at..].starts_with(&old)).count() {
                1 => text = text.replacen(&old, &new, 1),
                0 => return Err(format!("{} has nowhere these lines:\n{}", self.path, hunk.old)),
                places => {
                    return Err(format!("{} has {places} times these lines:\n{}", self.path, hunk.old));
                }
            }
        }
        Ok(text.split_off(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "says what\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n";

    #[test]
    fn a_patch_goes_where_its_lines_are() {
        let Ok((header, files)) = parse(PATCH) else { panic!("it is a patch") };
        assert_eq!((header, files[0].path.as_str()), (vec!["says what"], "f"));
        assert_eq!(files[0].apply("x\na\nb\nd\n").as_deref(), Ok("x\na\nc\nd\n"));
        assert_eq!(files[0].apply("a\nb\nd\n").as_deref(), Ok("a\nc\nd\n"));
    }

    #[test]
    fn a_patch_that_fits_nowhere_or_twice_is_refused() {
        let Ok((_, files)) = parse(PATCH) else { panic!("it is a patch") };
        for text in ["a\nB\nd\n", "xa\nb\nd\n", "a\nb\nd\na\nb\nd\n"] {
            assert!(files[0].apply(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for text in ["", "words", "--- a/f\n+++ b/f\n", "--- a/f\n@@ @@\n", "--- a/f\n+++ b/f\n a\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
