//! Random changes of saved inputs.

use super::Target;

/// Inputs that are like the saved ones. The same seed makes the same inputs.
pub struct Mutations {
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    state: u64,
}

impl Mutations {
    /// # Panics
    ///
    /// If the target has no saved inputs.
    pub fn of(target: &Target, seed: u64) -> Self {
        let corpus: Vec<_> = target.corpus().into_iter().map(|(_, input)| input).collect();
        assert!(!corpus.is_empty(), "{} has no saved inputs", target.name);
        Self { corpus, words: target.words, state: seed }
    }

    /// Continues as if made with this seed.
    pub fn reseed(&mut self, seed: u64) {
        self.state = seed;
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    fn one_of_corpus(&mut self) -> Vec<u8> {
        let which = self.below(self.corpus.len());
        self.corpus[which].clone()
    }

    /// A part of `input`, from one random place to another. Half of the time it is whole lines.
    fn part(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let (one, other) = (self.below(input.len() + 1), self.below(input.len() + 1));
        let (mut start, mut end) = (one.min(other), one.max(other));
        if self.below(2) == 0 {
            start = input[..start].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            end = input[end..].iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| end + at + 1);
        } else {
            // A short one changes less.
            end = end.min(start + 8);
        }
        start..end
    }

    /// Makes one random change.
    pub fn change(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input);
        match self.below(7) {
            0 => {
                input.drain(part);
            }
            1 => {
                let copy = input[part].to_vec();
                let at = self.part(input).start;
                input.splice(at..at, copy);
            }
            2 => {
                let other = self.one_of_corpus();
                let copy = other[self.part(&other)].to_vec();
                input.splice(part, copy);
            }
            3 | 4 if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())].bytes();
                let end = if self.below(2) == 0 { part.start } else { part.end };
                input.splice(part.start..end, word);
            }
            5 => self.change_number(input),
            _ => {
                let byte = self.random() as u8;
                match input.get_mut(part.start) {
                    Some(old) if self.below(2) == 0 => *old = byte,
                    Some(old) => *old ^= 1 << (byte % 8),
                    None => input.push(byte),
                }
            }
        }
    }

    /// Replaces a number by a neighbour or by a number at the end of a range.
    fn change_number(&mut self, input: &mut Vec<u8>) {
        let starts: Vec<_> = (0..input.len())
            .filter(|at| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let start = starts[self.below(starts.len())];
        let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let old = std::str::from_utf8(&input[start..start + digits]).ok().and_then(|old| old.parse().ok());
        let ends = [u64::MAX, i64::MAX as u64, u64::from(u32::MAX), i32::MAX as u64, 1 << 53, 0, 1, 2];
        let new = match (self.below(3), old) {
            (0, Some(old)) => u64::wrapping_add(old, 1),
            (1, Some(old)) => u64::wrapping_sub(old, 1),
            _ => ends[self.below(ends.len())],
        };
        input.splice(start..start + digits, new.to_string().into_bytes());
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut input = self.one_of_corpus();
        for _ in 0..=self.below(5) {
            self.change(&mut input);
        }
        input.truncate(16 * 1024);
        Some(input)
    }
}
