//! Messages of the agent's protocol, one per line.
//!
//! A line is framed with its length. A line that starts with `!` is sent as it is. `<9999>` means so many letters.

/// So long may all letters together be that an input abbreviates.
const MOST_LETTERS: usize = 3 << 20;

/// A line of the input.
pub(super) enum Line {
    /// The old connection ends, and a new one begins.
    Reconnect,
    /// A new connection beside the others.
    AnotherConnection,
    /// Bytes to send. They are a whole frame unless `is_raw`.
    Bytes { bytes: Vec<u8>, is_raw: bool },
}

pub(super) fn lines(input: &[u8]) -> impl Iterator<Item = Line> {
    let mut letters = MOST_LETTERS;
    input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(move |line| match line {
        b"-" => Line::Reconnect,
        b"+" => Line::AnotherConnection,
        [b'!', raw @ ..] => Line::Bytes { bytes: expand(raw, &mut letters), is_raw: true },
        message => Line::Bytes { bytes: frame(&expand(message, &mut letters)), is_raw: false },
    })
}

/// A message with its length.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], message].concat()
}

fn expand(text: &[u8], letters: &mut usize) -> Vec<u8> {
    let mut expanded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let count = std::str::from_utf8(&after[..digits]).ok().and_then(|digits| digits.parse().ok());
        match count {
            Some(count) if *first == b'<' && after.get(digits) == Some(&b'>') => {
                let count = (*letters).min(count);
                *letters -= count;
                expanded.resize(expanded.len() + count, b'x');
                rest = &after[digits + 1..];
            }
            _ => expanded.push(*first),
        }
    }
    expanded
}
