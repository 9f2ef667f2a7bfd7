//! Makes text from other users safe to print on a terminal.
//!
//! Names, labels and commands come from all users of the home. They must not move the cursor, change colours, or change
//! the direction of the text next to them.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Removes control characters, and invisible characters that terminals treat differently.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return text.into();
    }
    let replaced = text.chars().filter_map(|character| match character {
        '\n' | '\t' => Some(' '),
        character if is_harmless(character) => Some(character),
        // Not U+FFFD: some terminals show nothing for it, and the columns after it would shift.
        character if character.is_control() => Some('?'),
        _ => None,
    });
    replaced.collect::<String>().into()
}

fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Cuts the text to `width` columns, with an ellipsis at the cut.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let room = width.saturating_sub(1);
    let mut used = 0;
    let end = text.char_indices().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > room
    });
    let kept = end.map_or(text, |(at, _)| &text[..at]);
    if width == 0 { "".into() } else { format!("{kept}…").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_could_break_the_screen_are_removed() {
        assert_eq!(plain("images"), "images");
        assert_eq!(plain("größe 画像 🎬"), "größe 画像 🎬");
        assert_eq!(plain("a\u{1b}[2Jb\u{7}c"), "a?[2Jb?c");
        assert_eq!(plain("a\u{9b}31mb"), "a?31mb", "the one-byte form of an escape sequence");
        assert_eq!(plain("sh -c 'one\n\ttwo'"), "sh -c 'one  two'");
        assert_eq!(plain("safe\u{202e}live"), "safelive", "no right-to-left override");
        assert_eq!(plain("a\u{200b}b\u{feff}"), "ab", "two names never differ only in invisible characters");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(fit("images", 6), "images");
        assert_eq!(fit("images", 5), "imag…");
        assert_eq!(fit("画像処理", 5), "画像…", "a wide character takes two columns");
        assert_eq!(fit("画像処理", 4), "画…", "a wide character is not cut in half");
        assert_eq!(fit("images", 1), "…");
        assert_eq!(fit("images", 0), "");
    }
}
