use aya_obj::btf::BtfKind;

use super::*;
use crate::kernel::OBJECT;

fn description() -> Option<Vec<u8>> {
    let description = std::fs::read(DESCRIPTION).ok();
    if description.is_none() {
        println!("did not run: this kernel does not describe its types");
    }
    description
}

/// The object's instructions, with the places of fields as these types have them.
fn instructions(types: &Btf) -> Vec<Vec<[u8; 8]>> {
    let mut object = Object::parse(OBJECT).unwrap();
    object.relocate_btf(types).unwrap();
    let bytes = |instruction: &aya_obj::generated::bpf_insn| {
        let [destination, source] = [instruction.dst_reg(), instruction.src_reg()];
        let mut bytes = [instruction.code, destination << 4 | source, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&instruction.off.to_ne_bytes());
        bytes[4..].copy_from_slice(&instruction.imm.to_ne_bytes());
        bytes
    };
    object.functions.values().map(|function| function.instructions.iter().map(bytes).collect()).collect()
}

#[test]
fn what_is_left_of_the_types_says_the_same_of_all_that_the_recorder_knows() {
    let Some(description) = description() else { return };
    let all = Btf::parse(&description, Endianness::default()).unwrap();
    let some = known_to(OBJECT, &["bpf_rdonly_cast"]).unwrap();
    let [left, before] = [&some, &all].map(|types| types.to_bytes().len());
    assert!(left < before * 3 / 4, "most has been left out: {left} of {before} bytes");
    assert_eq!(instructions(&some), instructions(&all));
    for (name, kind) in [
        ("bpf_rdonly_cast", BtfKind::Func),
        ("btf_trace_sys_enter", BtfKind::Typedef),
        ("btf_trace_io_uring_complete", BtfKind::Typedef),
    ] {
        let [number, wanted] = [&some, &all].map(|types| types.id_by_type_name_kind(name, kind).ok());
        assert_eq!(number, wanted, "{name}");
    }
}

#[test]
fn a_description_that_is_cut_off_or_of_another_time_is_none() {
    let Some(description) = description() else { return };
    let types = Types::read(&description).unwrap();
    assert!(types.types.len() > 1000);
    for bytes in (0..100).chain((100..description.len()).step_by(100_003)) {
        assert!(Types::read(&description[..bytes]).is_none(), "{bytes}");
    }
    let mut other = description.clone();
    // The kind of its first type.
    other[types.header.len() + 7] = 25;
    assert!(Types::read(&other).is_none());
}
