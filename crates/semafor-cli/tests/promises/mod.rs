//! What the command promises with every home. Each promise is a function; [`promises!`] makes a test of each.
//!
//! No test sleeps to let another process get somewhere: it polls until the expected state is reached. The children
//! record themselves which of them ran at the same time.

pub(crate) mod arguments;
pub(crate) mod bound;
pub(crate) mod by_id;
pub(crate) mod exit_codes;
pub(crate) mod kills;
pub(crate) mod line;
pub(crate) mod loss;
pub(crate) mod signals;
pub(crate) mod status;

use semafor_testkit::cli::{CommandEnv, Process};

/// Takes a lock that is held while the child or one of its children lives. A second command that finds it locked
/// overlaps.
pub(crate) const ALONE: &str = "exec 9>> busy; flock -n 9 || echo \"$SEMAFOR_ID\" >> overlaps;";

/// A run that holds a slot of "it" until the gate named "gate" is opened.
pub(crate) fn hold(env: &CommandEnv, more: &[&str]) -> Process {
    let run = env.start([&["run", "--name", "it"], more, &["--", "sh", "-c", ": < gate"]].concat());
    env.until_holders("it", 1);
    run
}

/// Makes a test of each promise, with its own environment: `promises!(expression)`.
macro_rules! promises {
    ($env:expr) => {
        promises! { $env =>
            arguments {
                options_after_the_command_belong_to_the_command
                arguments_may_be_invalid_utf8
                program_name_may_be_invalid_utf8
                all_bytes_pass_from_stdin_to_stdout
                unread_stdin_is_left_for_the_next_command
                stderr_contains_only_the_commands_output
                open_file_descriptors_are_inherited
                environment_is_inherited_with_semafor_variables_added
                nested_run_does_not_wait_for_itself
                readers_see_the_end_when_the_command_ends
            }
            bound {
                never_more_than_the_slots_run_at_once
                weight_takes_that_many_slots
                environment_has_slot_token_and_id
                slots_can_be_relative_to_cores
            }
            by_id {
                acquired_slot_is_held_until_released
                acquired_slot_ends_with_its_ttl
                renewing_counts_from_now
                renewed_slot_is_held_beyond_its_first_ttl
                weight_is_acquired_and_released_as_one
                acquire_waits_in_line_and_times_out
                killed_acquire_leaves_the_line
                interrupted_acquire_leaves_the_line
                slot_is_released_if_the_id_cannot_be_printed
                slot_is_held_if_the_id_goes_to_dev_null
                acquire_leaves_the_line_when_its_reader_is_gone
                acquire_leaves_the_line_when_its_script_is_killed
                acquire_in_the_background_outlives_its_script
                signal_before_the_id_is_printed_releases_the_slot
                slot_is_released_if_the_reader_ends_before_the_id_is_printed
                ignored_signal_does_not_end_acquire
                evicted_id_holds_no_slot
                ids_that_hold_no_slot_are_errors
                unused_names_are_errors
                different_number_of_slots_is_refused_with_both_numbers
                default_slots_are_the_current_number_or_one
                acquire_json_has_the_documented_keys
            }
            exit_codes {
                exit_code_of_the_command_is_passed_on
                command_ended_by_a_signal_exits_with_128_plus_its_number
                missing_command_exits_with_127
                command_that_cannot_run_exits_with_126
                command_that_cannot_run_does_not_wait_in_line
                different_number_of_slots_is_refused_with_both_numbers
            }
            kills {
                command_of_a_killed_holder_is_killed_before_the_next_begins
                killed_waiter_leaves_the_line
                killed_command_exits_with_137
                killed_guardian_does_not_affect_the_command
                many_killed_clients_leave_nothing_behind
            }
            line {
                first_come_first_served
                timeout_error_names_the_holders
                nothing_is_printed_to_a_pipe
                signal_ends_the_wait
            }
            loss {
                eviction_sends_sigterm_to_the_command_and_its_children
                command_that_ignores_sigterm_is_killed_with_its_children
                grace_of_zero_kills_at_once
                command_that_exceeds_its_ttl_ends_before_the_next_begins
                command_of_an_evicted_holder_ends_before_the_next_begins
                command_that_ends_within_its_ttl_is_not_affected
                on_lost_warn_lets_the_command_continue
                renewed_run_continues_beyond_its_ttl
                run_renewed_for_a_shorter_time_ends_before_the_next_begins
                run_without_a_ttl_that_is_renewed_with_one_ends_before_the_next_begins
            }
            signals {
                every_signal_reaches_the_command
                exit_code_tells_the_signal_that_ended_the_command
                ignored_signals_stay_ignored
                stopped_command_can_be_continued
                stopped_holder_can_be_continued
            }
            status {
                status_lists_the_fullest_first
                status_shows_only_the_given_names
                inspect_json_has_the_documented_keys
                output_to_a_pipe_has_no_colours
                reader_that_closes_early_is_not_an_error
                resize_serves_the_line
                status_without_semaphores_is_an_empty_array
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
