//! What access control promises, over each way to have it and each grain of it.
//!
//! A process has one heap and one handler of faults: each case runs in a process of its own.
#![expect(unsafe_code, reason = "loads and stores that the MMU stops, and signals")]

mod atomicity;
mod content;
mod endings;
mod imports;
mod isolation;
mod rights;
mod sharing;
mod signals;
mod sizes;
mod world;

use comb_memory::{Control, Grain};

/// What a case runs over.
#[derive(Clone, Copy, Debug)]
struct Kind {
    control: Control,
    grain: Grain,
    block_bytes: u32,
}

macro_rules! each_kind {
    ($($module:ident::$case:ident as $name:ident),* $(,)?) => {
        each_kind!(@kind userfaultfd_pages_of_4_kilobytes, Userfaultfd, Pages, 4096, $($module::$case as $name),*);
        each_kind!(@kind userfaultfd_pages_of_64_kilobytes, Userfaultfd, Pages, 65536, $($module::$case as $name),*);
        each_kind!(@kind userfaultfd_minipages_of_128_bytes, Userfaultfd, Minipages, 128, $($module::$case as $name),*);
        each_kind!(@kind userfaultfd_minipages_of_2048_bytes, Userfaultfd, Minipages, 2048, $($module::$case as $name),*);
        each_kind!(@kind protections_pages_of_4_kilobytes, Protections, Pages, 4096, $($module::$case as $name),*);
        each_kind!(@kind protections_pages_of_64_kilobytes, Protections, Pages, 65536, $($module::$case as $name),*);
        each_kind!(@kind protections_minipages_of_128_bytes, Protections, Minipages, 128, $($module::$case as $name),*);
    };
    (@kind $kind:ident, $control:ident, $grain:ident, $block_bytes:expr, $($module:ident::$case:ident as $name:ident),*) => {
        mod $kind {
            const KIND: super::Kind = super::Kind {
                control: comb_memory::Control::$control,
                grain: comb_memory::Grain::$grain,
                block_bytes: $block_bytes,
            };
            $(
                #[test]
                fn $name() {
                    let name = concat!(stringify!($kind), "::", stringify!($name));
                    crate::isolation::passes(name, || crate::$module::$case(KIND));
                }
            )*
        }
    };
}

/// Where a program's own code looks before it loads and stores: of cases, those whose accesses do.
macro_rules! each_checked_kind {
    ($($module:ident::$case:ident as $name:ident),* $(,)?) => {
        each_kind!(@kind checked_blocks_of_128_bytes, Userfaultfd, Checked, 128, $($module::$case as $name),*);
        each_kind!(@kind checked_blocks_of_2048_bytes, Userfaultfd, Checked, 2048, $($module::$case as $name),*);
        each_kind!(@kind checked_blocks_of_64_kilobytes, Userfaultfd, Checked, 65536, $($module::$case as $name),*);
        each_kind!(@kind checked_blocks_by_protections, Protections, Checked, 128, $($module::$case as $name),*);
        each_kind!(@kind checked_stores_of_4_kilobytes, Userfaultfd, CheckedStores, 4096, $($module::$case as $name),*);
        each_kind!(@kind checked_stores_of_64_kilobytes, Userfaultfd, CheckedStores, 65536, $($module::$case as $name),*);
        each_kind!(@kind checked_stores_by_protections, Protections, CheckedStores, 4096, $($module::$case as $name),*);
    };
}

each_checked_kind! {
    rights::a_load_of_invalid_stops as a_load_of_invalid_stops_as_a_load,
    rights::a_store_to_invalid_stops as a_store_to_invalid_stops_as_a_store,
    rights::read_only_stops_stores as read_only_stops_stores_and_no_loads,
    rights::read_write_stops_nothing as read_write_stops_nothing,
    rights::mixed_runs as runs_of_mixed_rights_get_one,
    rights::neighbours as neighbours_keep_their_rights,
    rights::raised_in_steps as a_right_goes_up_and_down_in_all_ways,
    rights::dropped as what_the_kernel_drops_comes_back,
    rights::marked as an_entry_of_a_smaller_right_is_repaired,
    rights::never_touched as memory_that_was_never_touched_has_the_right_it_began_with,
    content::filled as what_is_filled_is_loaded,
    content::stored as what_is_stored_is_copied_out_and_stays,
    content::delivered as what_is_delivered_is_loaded_whatever_was_there,
    content::patched as a_patch_changes_its_bytes_alone,
    content::discarded as discarded_memory_is_given_back_and_comes_back_empty_or_filled,
    content::begun_again as an_allocation_in_the_same_place_begins_anew,
    atomicity::no_late_store as no_store_comes_after_a_right_was_lowered,
    atomicity::no_late_load as no_load_comes_after_a_right_was_taken,
    atomicity::counters as atomics_count_right_while_rights_come_and_go,
    atomicity::together as no_store_of_several_comes_after_a_right_was_lowered,
    signals::waiting as signals_are_handled_while_a_thread_waits_for_long,
    signals::short_stack as a_handler_on_a_short_signal_stack_touches_memory_that_is_not_here,
    signals::errno as a_served_fault_leaves_errno_alone,
    endings::careful as a_careful_copy_ends_where_memory_is_lost,
    sharing::forked as a_forked_child_has_none_of_it,
}

each_kind! {
    rights::a_load_of_invalid_stops as a_load_of_invalid_stops_as_a_load,
    rights::a_store_to_invalid_stops as a_store_to_invalid_stops_as_a_store,
    rights::read_only_stops_stores as read_only_stops_stores_and_no_loads,
    rights::read_write_stops_nothing as read_write_stops_nothing,
    rights::mixed_runs as runs_of_mixed_rights_get_one,
    rights::neighbours as neighbours_keep_their_rights,
    rights::raised_in_steps as a_right_goes_up_and_down_in_all_ways,
    rights::instructions as every_instruction_that_stores_is_a_store,
    rights::dropped as what_the_kernel_drops_comes_back,
    rights::marked as an_entry_of_a_smaller_right_is_repaired,
    rights::never_touched as memory_that_was_never_touched_has_the_right_it_began_with,
    content::filled as what_is_filled_is_loaded,
    content::stored as what_is_stored_is_copied_out_and_stays,
    content::delivered as what_is_delivered_is_loaded_whatever_was_there,
    content::patched as a_patch_changes_its_bytes_alone,
    content::discarded as discarded_memory_is_given_back_and_comes_back_empty_or_filled,
    content::begun_again as an_allocation_in_the_same_place_begins_anew,
    content::library as the_libraries_copies_work_on_memory_that_is_not_here,
    atomicity::no_late_store as no_store_comes_after_a_right_was_lowered,
    atomicity::no_late_load as no_load_comes_after_a_right_was_taken,
    atomicity::counters as atomics_count_right_while_rights_come_and_go,
    signals::nested as a_signals_handler_touches_memory_that_is_not_here,
    signals::waiting as signals_are_handled_while_a_thread_waits_for_long,
    signals::short_stack as a_handler_on_a_short_signal_stack_touches_memory_that_is_not_here,
    signals::errno as a_served_fault_leaves_errno_alone,
    endings::careful as a_careful_copy_ends_where_memory_is_lost,
    sharing::forked as a_forked_child_has_none_of_it,
}
