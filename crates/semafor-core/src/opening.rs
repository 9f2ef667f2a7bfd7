//! Decides what opening a name does. No other file does.
//!
//! 1. A name in use keeps its number of slots: a handle that asks for another number is refused, and a handle that
//!    gives none uses the present number.
//! 2. An idle name, with no holder and no waiter, takes the number of slots that the handle asks for.
//! 3. A closed name stays closed while slots are held. Then a new gate replaces it, with the same number of slots and
//!    the same bound of its line unless the handle asks for others, and with larger fencing tokens. Handles of the old
//!    gate stay closed.
//! 4. The bound of the line is the one that the latest handle with a bound asked for.

use crate::{Effects, Gate, Timestamp};

/// What a handle asks for when it opens a name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Opening {
    /// How many slots; `None` to keep the present number.
    pub slots: Option<u32>,
    /// How many waiters the line takes; `None` to keep the present bound.
    pub max_waiting: Option<usize>,
}

/// The answer to [`Gate::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The handle uses this gate.
    Joined,
    /// This gate stays closed. [Begin](Gate::begin) a new gate in its place.
    Succeeded {
        /// The options of the new gate.
        opening: Opening,
        /// The newest fencing token of this gate.
        last_token: u64,
    },
}

/// Why a name can't be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenRefusal {
    /// It asks for zero slots.
    ZeroSlots,
    /// The name is new, and the number of slots was not set.
    SlotsNotSet,
    /// The name is in use with another number of slots.
    SlotsMismatch {
        /// How many slots there are.
        live: u32,
        /// How many slots it asks for.
        asked: u32,
    },
    /// The name was closed, and slots are still held.
    Closing {
        /// How many slots are held.
        held: u32,
    },
}

impl<W, T: Default> Gate<W, T> {
    /// The gate of a new name, or the [successor](Opened::Succeeded) of a closed gate. Its ids contain `serial`, and
    /// its fencing tokens are above `last_token`.
    ///
    /// # Errors
    ///
    /// [`OpenRefusal`] if the number of slots is not set or zero.
    pub fn begin(serial: u32, opening: Opening, last_token: u64) -> Result<Self, OpenRefusal> {
        let slots = opening.slots.ok_or(OpenRefusal::SlotsNotSet)?;
        let mut gate = Self::new(serial, slots).map_err(|_| OpenRefusal::ZeroSlots)?;
        gate.continue_after(last_token);
        if let Some(limit) = opening.max_waiting {
            gate.set_max_waiting(limit);
        }
        Ok(gate)
    }

    /// Opens the name of this gate for one more handle. Overdue leases and waits end first, which may make the name
    /// idle.
    ///
    /// # Errors
    ///
    /// [`OpenRefusal`]; then nothing has changed, except that overdue leases and waits have ended.
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
