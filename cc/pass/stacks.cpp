#include "stacks.h"
#include "privacy.h"
#include "runtime.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace comb {

namespace {

// The ABI's: every frame begins and ends at a multiple.
constexpr uint64_t FrameAlignment = 16;

class SharedFrame {
public:
    explicit SharedFrame(Function &function) : function(function), layout(function.getParent()->getDataLayout()) {}

    unsigned build() {
        find();
        if (fixed.empty() && dynamic.empty() && landing_pads.empty())
            return 0;
        for (AllocaInst *object : fixed)
            forget_lifetime(*object);
        for (AllocaInst *object : dynamic)
            forget_lifetime(*object);
        // A function that only catches must still give back what it unwound.
        make_room();
        for (AllocaInst *object : dynamic)
            move_dynamic(*object);
        if (!dynamic.empty())
            restore_with_stack();
        give_back();
        return unsigned(fixed.size() + dynamic.size());
    }

private:
    Function &function;
    const DataLayout &layout;
    SmallVector<AllocaInst *> fixed, dynamic;
    SmallVector<Instruction *> landing_pads;
    // Where the stack was before this function, and behind its fixed objects.
    Value *before = nullptr;
    Value *behind = nullptr;
    // With dynamic objects: private memory that holds where the stack is now.
    AllocaInst *level = nullptr;

    void find() {
        for (Instruction &instruction : instructions(function)) {
            if (auto *object = dyn_cast<AllocaInst>(&instruction)) {
                if (must_be_shared(*object))
                    (object->isStaticAlloca() ? fixed : dynamic).push_back(object);
            } else if (isa<LandingPadInst>(instruction)) {
                landing_pads.push_back(&instruction);
            } else if (auto *call = dyn_cast<CallInst>(&instruction); call && call->hasFnAttr(Attribute::ReturnsTwice)) {
                landing_pads.push_back(call);
            }
        }
    }

    Value *stack_pointer(IRBuilder<> &builder) { return thread_field(builder, ThreadField::SharedStack); }

    uint64_t place_fixed(SmallVectorImpl<uint64_t> &places, Align &alignment) {
        uint64_t bytes = 0;
        for (AllocaInst *object : fixed) {
            bytes = alignTo(bytes, object->getAlign());
            places.push_back(bytes);
            bytes += object->getAllocationSize(layout)->getFixedValue();
            alignment = std::max(alignment, object->getAlign());
        }
        return alignTo(bytes, alignment);
    }

    void make_room() {
        SmallVector<uint64_t> places;
        Align alignment(FrameAlignment);
        uint64_t bytes = place_fixed(places, alignment);
        // Allocas that stay must stay in the entry block, before the branch.
        BasicBlock &entry = function.getEntryBlock();
        auto first = entry.getFirstNonPHIOrDbgOrAlloca();
        SmallVector<AllocaInst *> staying;
        for (Instruction &instruction : entry)
            if (auto *object = dyn_cast<AllocaInst>(&instruction); object && object->isStaticAlloca())
                staying.push_back(object);
        Instruction *start = &*first;
        for (AllocaInst *object : staying)
            object->moveBefore(start);
        IRBuilder<> builder(start);
        if (!dynamic.empty()) {
            level = builder.CreateAlloca(builder.getPtrTy(), nullptr, "shared.level");
        }
        before = builder.CreateLoad(builder.getPtrTy(), stack_pointer(builder), "shared.before");
        behind = before;
        if (bytes > 0)
            behind = take(builder, before, builder.getInt64(bytes), alignment);
        if (level)
            builder.CreateStore(behind, level);
        for (auto [object, place] : zip(fixed, places))
            replace(*object, builder.CreateConstGEP1_64(builder.getInt8Ty(), behind, place, "shared." + object->getName()));
    }

    // Moves the thread's stack down by `bytes`; the builder stands behind that afterwards.
    Value *take(IRBuilder<> &builder, Value *top, Value *bytes, Align alignment) {
        Type *number = builder.getInt64Ty();
        Value *end = builder.CreateLoad(builder.getPtrTy(), thread_field(builder, ThreadField::SharedStackEnd));
        Value *room = builder.CreateSub(builder.CreatePtrToInt(top, number), builder.CreatePtrToInt(end, number));
        Value *asked = builder.CreateAdd(bytes, builder.getInt64(alignment.value()));
        Value *is_full = builder.CreateICmpULT(room, asked);
        Instruction *rest = &*builder.GetInsertPoint();
        BasicBlock *from = rest->getParent();
        Instruction *full = SplitBlockAndInsertIfThen(is_full, rest, false, unlikely(function.getContext()));
        IRBuilder<> out_of_line(full);
        Value *more = out_of_line.CreateCall(more_stack(*function.getParent()), {asked});
        builder.SetInsertPoint(rest->getParent(), rest->getParent()->begin());
        PHINode *there = builder.CreatePHI(builder.getPtrTy(), 2);
        there->addIncoming(top, from);
        there->addIncoming(more, full->getParent());
        builder.SetInsertPoint(rest);
        Value *taken = builder.CreateGEP(builder.getInt8Ty(), there, builder.CreateNeg(bytes));
        taken = builder.CreateIntrinsic(Intrinsic::ptrmask, {taken->getType(), number},
                                        {taken, builder.getInt64(~(alignment.value() - 1))});
        builder.CreateStore(taken, stack_pointer(builder));
        return taken;
    }

    // Before any insertion point is chosen: it must not be one of these.
    static void forget_lifetime(AllocaInst &object) {
        for (User *user : make_early_inc_range(object.users()))
            if (auto *marker = dyn_cast<IntrinsicInst>(user); marker && marker->isLifetimeStartOrEnd())
                marker->eraseFromParent();
    }

    static void replace(AllocaInst &object, Value *shared) {
        object.replaceAllUsesWith(shared);
        object.eraseFromParent();
    }

    void move_dynamic(AllocaInst &object) {
        IRBuilder<> builder(&object);
        Value *count = builder.CreateZExtOrTrunc(object.getArraySize(), builder.getInt64Ty());
        uint64_t each = layout.getTypeAllocSize(object.getAllocatedType());
        Align alignment = std::max(object.getAlign(), Align(FrameAlignment));
        Value *bytes = builder.CreateMul(count, builder.getInt64(each));
        bytes = builder.CreateAnd(builder.CreateAdd(bytes, builder.getInt64(FrameAlignment - 1)),
                                  builder.getInt64(~(FrameAlignment - 1)));
        Value *top = builder.CreateLoad(builder.getPtrTy(), stack_pointer(builder));
        Value *taken = take(builder, top, bytes, alignment);
        builder.CreateStore(taken, level);
        replace(object, taken);
    }

    // Scopes with dynamic objects save and restore the machine stack. The shared one follows: its level is kept beside the saved
    // pointer, in a value or, in code that is not optimised, in a variable beside the variable.
    void restore_with_stack() {
        SmallVector<IntrinsicInst *> restores;
        for (Instruction &instruction : instructions(function))
            if (auto *call = dyn_cast<IntrinsicInst>(&instruction); call && call->getIntrinsicID() == Intrinsic::stackrestore)
                restores.push_back(call);
        DenseMap<Value *, Value *> beside;
        for (IntrinsicInst *call : restores) {
            Value *saved = call->getArgOperand(0);
            IRBuilder<> builder(call);
            Value *target = nullptr;
            if (auto *save = dyn_cast<IntrinsicInst>(saved)) {
                target = level_at(*save, beside);
            } else if (auto *load = dyn_cast<LoadInst>(saved)) {
                if (auto *variable = dyn_cast<AllocaInst>(load->getPointerOperand()))
                    target = builder.CreateLoad(builder.getPtrTy(), variable_beside(*variable, beside));
            }
            if (!target)
                continue;
            builder.CreateStore(target, stack_pointer(builder));
            builder.CreateStore(target, level);
        }
    }

    Value *level_at(IntrinsicInst &save, DenseMap<Value *, Value *> &beside) {
        Value *&value = beside[&save];
        if (!value) {
            IRBuilder<> builder(&save);
            value = builder.CreateLoad(builder.getPtrTy(), level);
        }
        return value;
    }

    Value *variable_beside(AllocaInst &variable, DenseMap<Value *, Value *> &beside) {
        if (Value *known = beside.lookup(&variable))
            return known;
        auto *twin = new AllocaInst(variable.getAllocatedType(), 0, "shared.saved", &variable);
        beside[&variable] = twin;
        for (User *user : variable.users())
            if (auto *store = dyn_cast<StoreInst>(user))
                if (auto *save = dyn_cast<IntrinsicInst>(store->getValueOperand()))
                    new StoreInst(level_at(*save, beside), twin, store);
        return twin;
    }

    void give_back() {
        for (BasicBlock &block : function) {
            auto *leave = dyn_cast<ReturnInst>(block.getTerminator());
            if (!leave)
                continue;
            Instruction *place = leave;
            if (CallInst *tail = block.getTerminatingMustTailCall())
                place = tail;
            IRBuilder<> builder(place);
            builder.CreateStore(before, stack_pointer(builder));
        }
        for (Instruction *pad : landing_pads) {
            IRBuilder<> builder(pad->getNextNode());
            Value *now = level ? builder.CreateLoad(builder.getPtrTy(), level) : behind;
            builder.CreateStore(now, stack_pointer(builder));
        }
    }
};

} // namespace

unsigned share_escaping_objects(Function &function) { return SharedFrame(function).build(); }

} // namespace comb
