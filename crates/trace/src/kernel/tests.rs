use super::*;

/// The recorder, attached to these and to what is needed; nothing where that is not permitted.
fn attached_also_to(attachment: Attachment) -> Option<Result<Kernel, KernelError>> {
    match Kernel::attach(false) {
        Err(error @ (KernelError::NotPermitted | KernelError::NoTypes | KernelError::SwitchedOff)) => {
            println!("did not run: {error}");
            return None;
        }
        result => drop(result.expect("it can be attached as it is")),
    }
    let needed = ATTACHMENTS.iter().filter(|attachment| attachment.what_is_missed.is_none());
    let mut all: Vec<Attachment> = needed
        .map(|attachment| Attachment { programs: attachment.programs, what_is_missed: None, ..*attachment })
        .collect();
    all.push(attachment);
    Some(Kernel::attach_to(Options::default(), &all))
}

#[test]
fn what_a_missing_tracepoint_would_tell_is_lacking_and_nothing_else() {
    let missing = useful(&["page_comes"], "mm_of_another_kernel", "what only others see");
    let Some(result) = attached_also_to(missing) else { return };
    let mut kernel = result.unwrap();
    assert_eq!(kernel.lacks(), ["what only others see (this kernel has no tracepoint mm_of_another_kernel)"]);
    let mut command = Command::new("/bin/true");
    command.stdin(std::process::Stdio::null());
    kernel.start(command).unwrap().wait().unwrap();
    let mut operations = Vec::new();
    kernel.fetch(usize::MAX, &mut |event, _| operations.push(event.operation));
    for operation in [crate::Operation::Execute, crate::Operation::Open, crate::Operation::ProcessEnds] {
        assert!(operations.contains(&(operation as u8)), "{operation}");
    }
}

#[test]
fn of_several_programs_the_one_is_taken_that_the_kernel_takes() {
    let others =
        useful(&["request_ends_in_numbers", "page_comes"], "mm_filemap_add_to_page_cache", "nothing");
    let Some(result) = attached_also_to(others) else { return };
    assert_eq!(result.unwrap().lacks(), Vec::<String>::new());
}

#[test]
fn without_a_tracepoint_that_is_needed_there_is_an_error_that_names_it() {
    let Some(result) = attached_also_to(needed(&["call_begins"], "sys_of_another_kernel")) else { return };
    let error = result.err().expect("it is needed").to_string();
    assert!(error.starts_with("this kernel has no tracepoint sys_of_another_kernel: "), "{error}");
}

#[test]
fn what_it_takes_from_others_is_told_while_the_kernel_counts_it() {
    let Ok(mut kernel) = Kernel::attach(false) else {
        println!("did not run: nothing can be recorded from within the kernel");
        return;
    };
    let counting = count_time_taken().unwrap();
    let mut taken = Duration::ZERO;
    for _ in 0..2 {
        kernel.start(Command::new("/bin/true")).unwrap().wait().unwrap();
        let more = kernel.time_taken().expect("it is counted");
        assert!(taken < more && more < Duration::from_secs(10), "{taken:?}, then {more:?}");
        taken = more;
    }
    drop(counting);
}
