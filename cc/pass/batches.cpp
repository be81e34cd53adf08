// Accesses that are checked together: pins around them, and notes of what was checked.
#include "assembly.h"
#include "checks.h"
#include "runtime.h"

using namespace llvm;

namespace comb {

namespace {

// Where one word of state bytes ends.
constexpr uint64_t WordLast = 7;

Value *load_states(IRBuilder<> &builder, Value *block) {
    Value *place = builder.CreateIntToPtr(builder.CreateAdd(block, builder.getInt64(StateTable)), builder.getPtrTy());
    LoadInst *states = builder.CreateAlignedLoad(builder.getInt64Ty(), place, Align(1), true);
    mark_own(*states);
    return states;
}

// Few bytes touch few blocks: their state bytes are looked at one by one.
constexpr uint64_t FewBytes = 3 * StateBlockBytes;

Value *forbidding_few(IRBuilder<> &builder, Value *address, uint64_t bytes, bool is_store) {
    Value *all = nullptr;
    for (uint64_t offset = 0;; offset = std::min(offset + StateBlockBytes, bytes - 1)) {
        Value *block = builder.CreateLShr(builder.CreateAdd(address, builder.getInt64(offset)), StateShift);
        Value *place = builder.CreateIntToPtr(builder.CreateAdd(block, builder.getInt64(StateTable)), builder.getPtrTy());
        LoadInst *state = builder.CreateAlignedLoad(builder.getInt8Ty(), place, Align(1), true);
        mark_own(*state);
        all = all ? builder.CreateOr(all, state) : state;
        if (offset == bytes - 1)
            break;
    }
    return builder.CreateZExt(is_store ? all : builder.CreateAnd(all, builder.getInt8(0x02)), builder.getInt64Ty());
}

// What forbids of a range's first sixteen state bytes, 0 if nothing does; `is_long` where there are more.
Value *forbidding(IRBuilder<> &builder, const RangeToCheck &range, Value *&is_long) {
    if (auto *constant = dyn_cast<ConstantInt>(range.bytes); constant && constant->getZExtValue() <= FewBytes)
        return forbidding_few(builder, range.address, constant->getZExtValue(), range.is_store);
    Value *first = builder.CreateLShr(range.address, StateShift);
    Value *last = builder.CreateAdd(range.address, builder.CreateSub(range.bytes, builder.getInt64(1)));
    Value *further = builder.CreateSub(builder.CreateLShr(last, StateShift), first);
    Value *word_last = builder.getInt64(WordLast);
    Value *states = load_states(builder, first);
    auto *bytes = dyn_cast<ConstantInt>(range.bytes);
    if (!bytes || bytes->getZExtValue() > WordLast * StateBlockBytes) {
        // A second word, that ends where the range does; it overlaps the first, or is the first.
        Value *second = builder.CreateBinaryIntrinsic(Intrinsic::usub_sat, further, word_last);
        states = builder.CreateOr(states, load_states(builder, builder.CreateAdd(first, second)));
        Value *is_longer = builder.CreateICmpUGT(further, builder.getInt64(2 * WordLast + 1));
        is_long = is_long ? builder.CreateOr(is_long, is_longer) : is_longer;
    }
    // The bytes behind a shorter range's go out at the top.
    Value *behind = builder.CreateBinaryIntrinsic(Intrinsic::usub_sat, word_last, further);
    Value *own = builder.CreateShl(states, builder.CreateMul(behind, builder.getInt64(8)));
    return range.is_store ? own : builder.CreateAnd(own, builder.getInt64(0x0202020202020202));
}

} // namespace

void Checker::note(IRBuilder<> &builder, ArrayRef<RangeToCheck> ranges) {
    uint64_t offset = 0;
    for (const RangeToCheck &range : ranges) {
        builder.CreateStore(range.address, thread_field(builder, ThreadField::Noted, offset));
        Value *doubled = builder.CreateOr(builder.CreateShl(range.bytes, 1), builder.getInt64(range.is_store));
        builder.CreateStore(doubled, thread_field(builder, ThreadField::Noted, offset + 8));
        offset += 16;
    }
    builder.CreateStore(builder.getInt64(ranges.size()), thread_field(builder, ThreadField::NotedCount));
}

void Checker::add_pin(IRBuilder<> &builder) {
    assemble(builder, builder.getVoidTy(), "incq $0", "*m", {thread_field(builder, ThreadField::Pins)}, {{0, builder.getInt64Ty()}});
}

void Checker::look_again(IRBuilder<> &builder) {
    Site site{is_position_independent, options.lookup_cost};
    assemble(builder, builder.getVoidTy(), "leaq -128(%rsp), %rsp\n" + call_keeping(site, "comb_batch") + "leaq 128(%rsp), %rsp", "", {}, {});
}

void Checker::unpin(IRBuilder<> &builder) { add_pin(builder); }

void Checker::pin_ranges(IRBuilder<> &builder, ArrayRef<RangeToCheck> ranges) {
    note(builder, ranges);
    add_pin(builder);
    Value *is_long = nullptr, *all = nullptr;
    for (const RangeToCheck &range : ranges) {
        Value *one = forbidding(builder, range, is_long);
        all = all ? builder.CreateOr(all, one) : one;
    }
    Value *must_look = builder.CreateICmpNE(all, builder.getInt64(0));
    if (is_long)
        must_look = builder.CreateOr(is_long, must_look);
    auto *again = BasicBlock::Create(function.getContext(), "look.again", &function);
    auto *pinned = BasicBlock::Create(function.getContext(), "pinned", &function);
    builder.CreateCondBr(must_look, again, pinned, unlikely(function.getContext()));
    builder.SetInsertPoint(again);
    look_again(builder);
    builder.CreateBr(pinned);
    builder.SetInsertPoint(pinned);
    // Nothing that is checked may be done before.
    builder.CreateFence(AtomicOrdering::SequentiallyConsistent, SyncScope::SingleThread);
}

void Checker::pin_around(Instruction &access, Value *pointer, Type *type, bool is_store, bool is_in_batch) {
    uint64_t bytes = layout.getTypeStoreSize(type).getFixedValue();
    IRBuilder<> before(&access), after(access.getNextNode());
    after.SetCurrentDebugLocation(access.getDebugLoc());
    counts.pinned++;
    // The end of a batch would be the end of its pins; such accesses keep a loop from being batched.
    assert(!is_in_batch);
    (void)is_in_batch;
    RangeToCheck range{before.CreatePtrToInt(pointer, before.getInt64Ty()), before.getInt64(bytes), is_store};
    note(before, range);
    if (is_store && bytes <= 16 && isPowerOf2_64(bytes)) {
        Site site{is_position_independent, options.lookup_cost};
        assemble(before, before.getInt64Ty(), pinned_begin(site, unsigned(bytes), Kind::Store), "=&r,*m,r,*m",
                 {pointer, before.getInt64(StateTable), thread_field(before, ThreadField::Pins)}, {{0, type}, {2, before.getInt64Ty()}});
    } else {
        add_pin(before);
        look_again(before);
    }
    unpin(after);
}

} // namespace comb
