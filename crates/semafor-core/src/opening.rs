//! What opening a name means. The one file that decides it.
//!
//! 1. A name in use keeps its number of slots: a handle that asks for another number is refused, and one that asks for none
//!    takes what there is.
//! 2. An idle name, with no holder and no waiter, takes the number that is asked for.
//! 3. A closed name stays closed while slots are held. Then a new gate succeeds it, with the same number of slots and the
//!    same bound of its line unless others are asked for, and with larger fencing tokens; handles of the old gate stay closed.
//! 4. The line is bounded as the newest handle that mentions a bound asked.

use crate::{Effects, Gate, Timestamp};

/// What a handle asks for when it opens a name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Opening {
    /// How many slots; `None` for as many as there are.
    pub slots: Option<u32>,
    /// How many may wait; `None` for as many as may already.
    pub max_waiting: Option<usize>,
}

/// The answer to [`Gate::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The handle uses this gate.
    Joined,
    /// This gate is closed for good. [Begin](Gate::begin) another one in its place.
    Succeeded {
        /// What the new gate is opened with.
        opening: Opening,
        /// The newest fencing token of this gate.
        last_token: u64,
    },
}

/// Why a name can't be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenRefusal {
    /// It asks for no slot at all.
    ZeroSlots,
    /// The name is new, and it does not ask for a number of slots.
    SlotsNotSet,
    /// The name is in use with another number of slots.
    SlotsMismatch {
        /// How many there are.
        live: u32,
        /// How many it asks for.
        asked: u32,
    },
    /// The name was closed, and slots are still held.
    Closing {
        /// How many.
        held: u32,
    },
}

impl<W, T: Default> Gate<W, T> {
    /// The gate of a new name, or of one whose gate [was succeeded](Opened::Succeeded). Its ids carry `serial`, and its fencing
    /// tokens are above `last_token`.
    ///
    /// # Errors
    ///
    /// [`OpenRefusal`] without a number of slots.
    pub fn begin(serial: u32, opening: Opening, last_token: u64) -> Result<Self, OpenRefusal> {
        let slots = opening.slots.ok_or(OpenRefusal::SlotsNotSet)?;
        let mut gate = Self::new(serial, slots).map_err(|_| OpenRefusal::ZeroSlots)?;
        gate.continue_after(last_token);
        if let Some(limit) = opening.max_waiting {
            gate.set_max_waiting(limit);
        }
        Ok(gate)
    }

    /// Opens the name of this gate for one more handle. Overdue leases and waits end first; the name may be idle then.
    ///
    /// # Errors
    ///
    /// [`OpenRefusal`]; nothing has changed then, except that overdue leases and waits have ended.
    pub fn open(
        &mut self,
        opening: Opening,
        now: Timestamp,
        effects: &mut Effects<W, T>,
    ) -> Result<Opened, OpenRefusal> {
        self.expire(now, effects);
        if opening.slots == Some(0) {
            return Err(OpenRefusal::ZeroSlots);
        }
        let slots = opening.slots.unwrap_or(self.slots());
        if self.is_closed() {
            if self.held() > 0 {
                return Err(OpenRefusal::Closing { held: self.held() });
            }
            let max_waiting = opening.max_waiting.unwrap_or(self.max_waiting());
            let opening = Opening { slots: Some(slots), max_waiting: Some(max_waiting) };
            return Ok(Opened::Succeeded { opening, last_token: self.last_token() });
        }
        if slots != self.slots() {
            let is_idle = self.held() == 0 && self.waiting() == 0;
            if !is_idle || self.resize(slots, now, effects).is_err() {
                return Err(OpenRefusal::SlotsMismatch { live: self.slots(), asked: slots });
            }
        }
        if let Some(limit) = opening.max_waiting {
            self.set_max_waiting(limit);
        }
        Ok(Opened::Joined)
    }
}
