//! The words after `cargo xtask`.

use crate::shell::Failure;

pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn from_env() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Takes the first word.
    pub(crate) fn next(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Takes `flag N` out, wherever it is.
    pub(crate) fn number(&mut self, flag: &str) -> Result<Option<u32>, Failure> {
        let Some(at) = self.0.iter().position(|word| word == flag) else { return Ok(None) };
        self.0.remove(at);
        let value = (at < self.0.len()).then(|| self.0.remove(at));
        match value.as_deref().map(str::parse) {
            Some(Ok(number)) if number > 0 => Ok(Some(number)),
            _ => Err(Failure::Usage(format!("`{flag}` needs a whole number of at least 1"))),
        }
    }

    /// Takes `flag` out, wherever it is. True if it was there.
    pub(crate) fn flag(&mut self, flag: &str) -> bool {
        let at = self.0.iter().position(|word| word == flag);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// The remaining words. An error if one of them is a flag.
    pub(crate) fn words(self) -> Result<Vec<String>, Failure> {
        match self.0.iter().find(|word| word.starts_with('-')) {
            Some(flag) => Err(Failure::Usage(format!("`{flag}` is not known here"))),
            None => Ok(self.0),
        }
    }

    /// What is left, for another program.
    pub(crate) fn rest(self) -> Vec<String> {
        self.0
    }

    /// An error if a word is left.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.words()?.first() {
            Some(word) => Err(Failure::Usage(format!("`{word}` is not known here"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn numbers_are_taken_from_anywhere() {
        let mut args = args("fair --repeat 3 cancel");
        assert_eq!(args.number("--repeat").ok(), Some(Some(3)));
        assert_eq!(args.words().ok(), Some(vec!["fair".into(), "cancel".into()]));
    }

    #[test]
    fn flags_are_taken_from_anywhere() {
        let mut args = args("lost --planted --minutes 3");
        assert!(args.flag("--planted") && !args.flag("--planted"));
        assert_eq!(args.rest(), ["lost", "--minutes", "3"]);
    }

    #[test]
    fn flag_needs_a_number_of_at_least_one() {
        for line in ["--repeat", "--repeat fair", "--repeat 0", "--repeat -1"] {
            assert!(args(line).number("--repeat").is_err(), "{line}");
        }
    }

    #[test]
    fn unknown_flags_and_words_are_refused() {
        assert!(args("fair --fast").words().is_err());
        assert!(args("fair").finish().is_err());
        assert!(args("").finish().is_ok());
    }
}
