//! Compares what the scripts published and stored with the core, after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use semafor_core::{NotHeld, Timestamp};

use super::{Comparison, code};
use crate::redis::inspect::Snapshot;
use crate::redis::script::model::clock::NANOS_PER_TICK;
use crate::redis::script::model::scripts::{Seen, number_of, texts, weights};
use crate::redis::script::schema::VISIBLE;

impl Comparison<'_> {
    /// Compares the messages and the state.
    pub(super) fn check(&mut self, seen: &Seen) -> TestCaseResult {
        let effects = std::mem::take(&mut self.effects);
        let (mut settled, mut lost) = (Vec::new(), Vec::new());
        for words in &seen.messages {
            let number = number_of(&words[1]);
            match &*words[0] {
                "lost" => lost.push((number, words[2].parse().expect("a code"))),
                "too_heavy" => {
                    let (weight, slots) = (self.clients[number].request.weight, self.gate.slots());
                    prop_assert_eq!(&words[2..], texts([&weight, &slots]));
                    settled.push((number, "turned away"));
                }
                "closed" => settled.push((number, "turned away")),
                _ => settled.push((number, "granted")),
            }
        }
        let woken = effects
            .wake
            .iter()
            .map(|number| (*number, if self.holds(*number) { "granted" } else { "turned away" }));
        prop_assert_eq!(settled, woken.collect::<Vec<_>>(), "waiters woken");
        let by_scripts = self.reported_by_scripts_only.drain(..);
        let core_lost = effects.lost.iter().map(|lost| (lost.tag, code(NotHeld::Lost(lost.loss))));
        let mut expected: Vec<_> = by_scripts.chain(core_lost).collect();
        // Leases that end at the same time end in any order.
        expected.sort_unstable();
        lost.sort_unstable();
        prop_assert_eq!(lost, expected, "holders that lost their slots");
        self.check_keys(seen)?;
        self.check_snapshot(seen)
    }

    fn check_keys(&self, seen: &Seen) -> TestCaseResult {
        let holders: BTreeMap<_, _> =
            self.gate.holders().map(|holder| (*holder.tag, holder.weight.min(VISIBLE))).collect();
        prop_assert_eq!(&seen.holders(), &holders, "holders");
        for holder in self.gate.holders() {
            let granted = self.clients[*holder.tag].got.map(|(slot, ..)| slot);
            prop_assert!(
                granted.is_none_or(|slot| slot == holder.id.slot()),
                "{:?} for {}",
                granted,
                holder.id
            );
        }
        let leases = self.gate.holders().filter(|holder| holder.expires != Timestamp::NEVER);
        let leases = leases.map(|holder| (*holder.tag, holder.expires.as_nanos() / NANOS_PER_TICK));
        prop_assert_eq!(&seen.leases, &leases.collect(), "leases");
        let line: Vec<_> =
            self.gate.waiters().map(|waiter| (*waiter.tag, waiter.weight.min(VISIBLE))).collect();
        prop_assert_eq!(&weights(&seen.line), &line, "the line");
        let beats: BTreeSet<_> = seen.beats.iter().map(|(member, _)| member).collect();
        prop_assert_eq!(beats, seen.line.iter().map(|(member, _)| member).collect(), "waiters");
        let live = holders.into_keys().chain(line.into_iter().map(|(number, _)| number));
        prop_assert_eq!(&seen.records, &live.collect(), "records");
        prop_assert_eq!(seen.own.keys().copied().collect::<BTreeSet<_>>(), seen.records.clone(), "own");
        for (number, ends) in &seen.leases {
            prop_assert!(seen.own[number] <= *ends, "{} ends after its lease", number);
        }
        Ok(())
    }

    fn check_snapshot(&self, seen: &Seen) -> TestCaseResult {
        let core = self.gate.stats(self.now());
        let snapshot = Snapshot::read(seen.snapshot.clone()).expect("a snapshot");
        prop_assert_eq!(snapshot.is_closed(), self.gate.is_closed());
        let stats = snapshot.into_stats("name".into(), 0);
        // Leases that are due count as ended.
        let due = self.gate.holders().filter(|holder| holder.expires <= self.now());
        let (due, weight) = due.fold((0, 0), |(count, weight), holder| (count + 1, weight + holder.weight));
        prop_assert_eq!(
            (stats.slots, stats.held, stats.holders, stats.waiting),
            (core.slots, core.held - weight, core.holders - due, core.waiting),
            "slots, held, holders, waiting"
        );
        let longest_waits = [stats.longest_wait, core.longest_wait];
        let [less, more] = [longest_waits.iter().min(), longest_waits.iter().max()].map(Option::unwrap);
        prop_assert!(*more - *less < Duration::from_millis(1), "longest wait: {:?}", longest_waits);
        let mut totals = core.totals;
        totals.timed_out += self.timed_out;
        totals.cancelled -= self.timed_out;
        totals.refused += self.late_requests;
        prop_assert_eq!(stats.totals, totals);
        prop_assert_eq!(&stats.waits, &core.waits, "waits");
        prop_assert_eq!(&stats.holds, &core.holds, "holds");
        Ok(())
    }
}
