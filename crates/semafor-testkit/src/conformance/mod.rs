//! The promises of every home. Each promise is a function with its name; [`conformance!`](crate::conformance!) makes a
//! test of each.
//!
//! No promise sleeps or reads a clock: time passes only through the [home](crate::Home). To check that an acquire
//! waits, a promise polls it [by hand](crate::by_hand) and asks the home. Polling alone is not enough for a remote
//! home: the grant may be on its way.

pub mod bound;
pub mod cancellation;
pub mod closing;
pub mod insight;
pub mod leases;
pub mod line;
pub mod names;
pub mod release;
pub mod resize;
pub mod run;
pub mod slots;
pub mod timeouts;
pub mod weights;

use std::time::Duration;

use semafor::Semaphore;

use crate::{Home, Spec};

/// Deadlines that the suite lets pass. Long enough that a home in real time gets that far before the deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

/// Deadlines that no promise reaches.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A promise that takes longer than this hangs.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Makes one test of each promise, with a home of its own: `conformance!(expression)`.
///
/// The expression is evaluated for each test, within a tokio runtime, and may await.
#[macro_export]
macro_rules! conformance {
    ($home:expr) => {
        $crate::conformance! { $home =>
            names {
                a_name_is_one_semaphore
                different_names_are_different_semaphores
                another_number_of_slots_for_a_live_name_is_an_error_with_both_numbers
                an_idle_name_takes_a_new_number_of_slots
                zero_slots_are_refused
                a_name_in_use_is_opened_without_a_number_of_slots
                a_new_name_without_a_number_of_slots_is_refused
                a_name_with_a_line_keeps_its_number_of_slots
                a_closed_name_that_is_opened_without_a_number_keeps_its_number
            }
            bound {
                never_more_than_the_slots_are_held_by_many_tasks
                never_more_than_the_slots_are_held_while_they_are_resized
            }
            line {
                first_come_first_served
                try_acquire_does_not_wait
                try_acquire_does_not_overtake_the_line
                freed_slot_belongs_to_the_first_waiter_before_it_is_polled
                full_line_refuses_requests
                a_place_in_line_is_free_again_once_left
            }
            weights {
                a_weight_takes_that_many_slots
                heavy_first_waiter_blocks_the_waiters_behind_it
                a_weight_above_the_slots_fails_at_once
                a_weight_of_zero_fails_at_once
            }
            timeouts {
                a_waiter_that_times_out_leaves_the_line
                the_semaphores_own_timeout_is_the_default
                a_timeout_of_zero_does_not_wait
                first_waiter_that_times_out_unblocks_the_waiters_behind_it
                a_waiter_that_was_served_does_not_time_out
            }
            leases {
                an_evicted_holder_whose_grace_is_over_counts_as_evicted
                an_expired_slot_goes_to_the_next_in_line
                an_expired_slot_is_free_without_waiters
                a_late_release_fails_without_effect
                a_late_drop_has_no_effect
                the_semaphores_own_ttl_is_the_default
                a_lease_starts_with_the_grant
                renewing_keeps_the_slot
                renewing_counts_from_now
                renewing_without_limit_keeps_the_slot_for_ever
                renewing_by_id_works_from_another_handle
                lost_slot_cannot_be_renewed
                evicted_holder_is_notified_and_the_next_waiter_served
                evicted_holder_with_grace_keeps_its_slot_until_it_releases_it
                evicted_holder_loses_its_slot_after_its_grace
                evicting_again_does_not_wait_for_the_grace
            }
            release {
                dropping_a_permit_releases_the_slot
                releasing_by_id_works_from_another_handle
                guard_is_notified_when_its_id_is_released
                a_second_release_says_released_and_frees_nothing
                an_id_of_another_semaphore_is_refused_and_changes_nothing
                a_detached_permit_is_held_until_released
                release_latest_releases_in_reverse_order
                release_latest_releases_only_permits_of_the_task
                release_latest_skips_ended_permits
            }
            cancellation {
                dropping_a_waiter_leaves_the_line
                dropping_a_heavy_first_waiter_unblocks_the_waiters_behind_it
                dropping_a_granted_waiter_hands_the_slot_on
                dropping_a_granted_waiter_without_a_line_frees_the_slot
                an_acquire_that_was_never_polled_takes_nothing
                leave_waits_until_everything_is_released
            }
            closing {
                closing_refuses_all_waiters
                closed_semaphore_refuses_new_requests
                holders_keep_their_slots_when_it_is_closed
                closed_name_opens_anew_once_all_slots_are_released
                handle_that_was_never_opened_closes_the_name_for_good
            }
            resize {
                growing_serves_the_line
                after_a_shrink_holders_stay_and_grants_wait
                shrinking_refuses_waiters_that_became_too_heavy
                a_resize_is_seen_by_all_handles
                resizing_to_zero_is_refused
                handle_that_was_never_opened_uses_its_new_number_of_slots
            }
            run {
                work_runs_under_a_slot_that_is_released_afterwards
                the_work_is_dropped_when_its_slot_is_lost
                work_without_a_slot_never_starts
                dropping_a_run_drops_the_work_and_releases_the_slot
            }
            slots {
                slot_numbers_start_at_zero_and_are_not_shared
                a_freed_slot_number_is_used_again
                a_grant_gets_the_lowest_free_number
                a_slot_number_is_reserved_for_its_holder
                fencing_tokens_grow_with_every_grant
                fencing_tokens_grow_beyond_a_close
                ids_are_not_used_again
            }
            insight {
                stats_count_holders_and_waiters
                holders_are_listed_with_their_details
                waiters_are_listed_in_order
                semaphore_is_locked_while_an_acquire_would_wait
                a_permit_says_how_long_it_waited
            }
        }
    };
    ($home:expr => $($topic:ident { $($promise:ident)* })*) => {
        $($(
            #[test]
            fn $promise() {
                $crate::conformance::keep(async { $crate::conformance::$topic::$promise(&$home).await });
            }
        )*)*
    };
}

/// Runs one promise in a runtime of its own.
///
/// # Panics
///
/// If it is not kept, or hangs.
pub fn keep(promise: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let kept =
        runtime.expect("a runtime").block_on(async { tokio::time::timeout(TIME_LIMIT, promise).await });
    assert!(kept.is_ok(), "it hangs");
}

/// A semaphore named "it", with so many slots.
pub(crate) async fn semaphore(home: &impl Home, slots: u32) -> Semaphore {
    open(home, Spec::new("it", slots)).await
}

pub(crate) async fn open(home: &impl Home, spec: Spec) -> Semaphore {
    home.open(spec).await.expect("opens")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_promise_is_in_the_conformance_macro() {
        let index = include_str!("mod.rs");
        let promised = [
            include_str!("bound.rs"),
            include_str!("cancellation.rs"),
            include_str!("closing.rs"),
            include_str!("insight.rs"),
            include_str!("leases.rs"),
            include_str!("line.rs"),
            include_str!("names.rs"),
            include_str!("timeouts.rs"),
            include_str!("release.rs"),
            include_str!("resize.rs"),
            include_str!("run.rs"),
            include_str!("slots.rs"),
            include_str!("weights.rs"),
        ];
        let names = promised.iter().flat_map(|topic| topic.split("pub async fn ").skip(1));
        for name in names.filter_map(|rest| rest.split(['(', '<']).next()) {
            assert!(index.contains(&format!(" {name}\n")), "{name} is not listed in conformance!");
        }
    }
}
