//! What the command promises wherever the semaphores are. Each promise is a function named by it; [`promises!`] makes
//! tests of them all.
//!
//! No promise sleeps to let others get somewhere: it asks how things stand until they stand so. What ran at the same time
//! is told by the children themselves.

pub(crate) mod arguments;
pub(crate) mod bound;
pub(crate) mod by_id;
pub(crate) mod exit_codes;
pub(crate) mod kills;
pub(crate) mod line;
pub(crate) mod loss;
pub(crate) mod signals;
pub(crate) mod standing;

use semafor_testkit::cli::{CommandEnv, Process};

/// A lock held for as long as the child or one of its children lives: a second command that finds it taken overlaps.
pub(crate) const ALONE: &str = "exec 9>> busy; flock -n 9 || echo \"$SEMAFOR_ID\" >> overlaps;";

/// A run that holds a slot of "it" until the gate named "gate" is opened.
pub(crate) fn hold(env: &CommandEnv, more: &[&str]) -> Process {
    let run = env.start([&["run", "--name", "it"], more, &["--", "sh", "-c", ": < gate"]].concat());
    env.until_holders("it", 1);
    run
}

/// Makes one test of each promise, with an environment of its own: `promises!(expression)`.
macro_rules! promises {
    ($env:expr) => {
        promises! { $env =>
            arguments {
                what_comes_after_the_command_is_the_commands
                bytes_that_are_no_text_pass_through
                a_program_whose_name_is_no_text_is_run
                all_bytes_go_from_stdin_to_stdout
                what_is_left_on_stdin_is_left_for_the_next
                stderr_is_the_commands
                other_open_files_are_passed_on
                the_environment_is_the_commands_and_ours
                a_run_in_a_run_does_not_wait_for_itself
                readers_see_the_end_when_the_command_ends
            }
            bound {
                never_more_than_the_slots_run_at_once
                a_weight_counts_as_so_many
                the_children_know_their_slots_and_tokens
                slots_can_be_counted_by_cores
            }
            by_id {
                what_is_acquired_is_held_until_released
                what_is_acquired_is_held_for_its_ttl
                renewing_counts_from_now
                what_was_renewed_is_held_beyond_its_first_ttl
                a_weight_is_taken_and_given_back_as_one
                acquire_waits_in_line_and_gives_up_in_time
                a_killed_acquire_leaves_the_line
                an_interrupted_acquire_leaves_the_line
                an_id_that_cannot_be_printed_is_given_back
                an_id_that_is_thrown_away_on_purpose_is_held
                an_acquire_whose_reader_is_gone_leaves_the_line
                an_acquire_whose_script_is_killed_leaves_the_line
                an_acquire_in_the_background_outlives_its_script
                a_signal_between_the_grant_and_the_id_gives_the_slot_back
                a_reader_that_ends_between_the_grant_and_the_id_gives_the_slot_back
                a_signal_that_is_ignored_does_not_end_an_acquire
                an_evicted_id_holds_nothing
                ids_that_hold_nothing_are_complained_of
                unused_names_are_reported
                another_number_of_slots_is_refused_with_both_numbers
                no_number_of_slots_is_the_one_in_use_or_one
                the_json_of_acquire_is_as_documented
            }
            exit_codes {
                the_commands_exit_code_is_passed_on
                a_command_that_a_signal_ends_is_128_and_its_number
                a_command_that_is_not_there_is_127
                a_command_that_cannot_run_is_126
                what_cannot_run_does_not_wait_in_line_first
                another_number_of_slots_is_refused_with_both_numbers
            }
            kills {
                a_killed_holder_takes_its_command_with_it_before_the_next_begins
                a_killed_waiter_leaves_the_line
                a_killed_command_is_137
                a_killed_guardian_is_no_loss
                many_killed_clients_leave_nothing_behind
            }
            line {
                first_come_first_served
                a_timeout_names_the_holders
                nothing_is_said_on_a_pipe
                a_signal_ends_the_waiting
            }
            loss {
                an_evicted_holders_command_is_asked_to_end_with_all_it_started
                a_command_that_does_not_end_is_killed_with_all_it_started
                without_a_grace_it_is_killed_at_once
                a_command_that_takes_too_long_is_ended_before_the_next_begins
                an_evicted_holders_command_is_ended_before_the_next_begins
                a_command_that_ends_in_time_is_none_the_wiser
                on_lost_warn_lets_the_command_run_on
            }
            signals {
                every_signal_reaches_the_command
                a_signal_that_ends_the_command_is_its_exit_code
                what_was_ignored_stays_ignored
                a_stopped_command_goes_on
                a_stopped_holder_goes_on
            }
            standing {
                status_is_an_array_with_the_fullest_first
                status_shows_only_the_names_that_were_asked_for
                the_json_of_inspect_is_as_documented
                what_is_printed_on_a_pipe_has_no_colours
                a_reader_that_stops_early_is_no_failure
                a_resize_serves_the_line
                nothing_in_use_is_an_empty_array
            }
        }
    };
    ($env:expr => $($topic:ident { $($promise:ident)* })*) => {
        $(mod $topic {
            use super::*;

            $(
                #[test]
                fn $promise() {
                    crate::promises::$topic::$promise(&$env);
                }
            )*
        })*
    };
}
