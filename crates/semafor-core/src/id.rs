use std::fmt;
use std::str::FromStr;

/// Identifies one grant of one gate, for ever: gate, slot number and fencing token.
///
/// The token grows with every grant of the gate, so an id is never issued twice and a stale id is recognised.
/// Written as `gate-slot-token` in hexadecimal, and parsed from the same form.
///
/// ```
/// use semafor_core::{Gate, PermitId, Request, Timestamp};
///
/// let mut gate: Gate<(), ()> = Gate::new(7, 3).unwrap();
/// let id = gate.try_acquire(&Request::default(), (), Timestamp::default()).unwrap();
/// assert_eq!(id.to_string(), "7-0-1");
/// assert_eq!("7-0-1".parse::<PermitId>(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId {
    token: u64,
    /// Gate and slot in one word: two words are passed in registers, three fields would not be.
    place: u64,
}

impl PermitId {
    /// An id that no gate ever issues.
    pub const NONE: Self = Self::new(0, 0, 0);

    #[inline]
    pub(crate) const fn new(gate: u32, slot: u32, token: u64) -> Self {
        Self { token, place: (gate as u64) << 32 | slot as u64 }
    }

    /// The slot number: 0-based, unique among live holders, below the number of slots at the time of the grant.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.place as u32
    }

    /// A number that grows with every grant of the gate.
    #[inline]
    pub const fn fencing_token(self) -> u64 {
        self.token
    }

    /// The serial number of the gate that issued the id.
    #[inline]
    pub const fn gate(self) -> u32 {
        (self.place >> 32) as u32
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.gate(), self.slot(), self.token)
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

/// The text is not a permit id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePermitIdError;

impl fmt::Display for ParsePermitIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a permit id: expected three hexadecimal numbers, like 7-0-2a")
    }
}

impl std::error::Error for ParsePermitIdError {}

impl FromStr for PermitId {
    type Err = ParsePermitIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        fn hex(part: Option<&str>) -> Result<u64, ParsePermitIdError> {
            let part = part.ok_or(ParsePermitIdError)?;
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParsePermitIdError);
            }
            u64::from_str_radix(part, 16).map_err(|_| ParsePermitIdError)
        }
        let mut parts = text.split('-');
        let (gate, slot, token) = (hex(parts.next())?, hex(parts.next())?, hex(parts.next())?);
        if parts.next().is_some() {
            return Err(ParsePermitIdError);
        }
        let narrow = |number: u64| u32::try_from(number).map_err(|_| ParsePermitIdError);
        Ok(Self::new(narrow(gate)?, narrow(slot)?, token))
    }
}

/// A place in the line, from queueing until it is [claimed](crate::Gate::claim) or
/// [cancelled](crate::Gate::cancel).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    pub(crate) arrival: u64,
    pub(crate) gate: u32,
    pub(crate) index: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_an_id_is_refused() {
        for text in ["", "1", "1-2", "1-2-3-4", "1--3", "x-0-1", "+1-0-1", "1-0-1 ", "100000000-0-1"] {
            assert_eq!(text.parse::<PermitId>(), Err(ParsePermitIdError), "{text:?}");
        }
    }
}
