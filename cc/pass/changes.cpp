// Changes of memory in place: `a[i] += x` looks once, for its store, and loads inside the same sequence.
#include "assembly.h"
#include "checks.h"
#include "runtime.h"

using namespace llvm;

namespace comb {

namespace {

// As an instruction's name without its width, or nothing.
const char *integer_name(unsigned opcode) {
    switch (opcode) {
    case Instruction::Add: return "add";
    case Instruction::Sub: return "sub";
    case Instruction::And: return "and";
    case Instruction::Or: return "or";
    case Instruction::Xor: return "xor";
    default: return nullptr;
    }
}

const char *floating_name(unsigned opcode) {
    switch (opcode) {
    case Instruction::FAdd: return "add";
    case Instruction::FSub: return "sub";
    case Instruction::FMul: return "mul";
    case Instruction::FDiv: return "div";
    default: return nullptr;
    }
}

// The accesses become one: nothing between them may change memory, or notice when.
bool can_meet(const LoadInst &load, const StoreInst &store) {
    if (load.getParent() != store.getParent())
        return false;
    for (const Instruction *between = load.getNextNode(); between; between = between->getNextNode()) {
        if (between == &store)
            return true;
        if (between->mayWriteToMemory() || between->mayHaveSideEffects())
            return false;
    }
    return false;
}

Value *other_operand(const BinaryOperator &change, const LoadInst &load) {
    return change.getOperand(change.getOperand(0) == &load ? 1 : 0);
}

// The load, when it, the store and what is computed between can be one checked change of memory; or null.
LoadInst *changed_in_place(StoreInst &store) {
    auto *change = dyn_cast<BinaryOperator>(store.getValueOperand());
    if (!change || !change->hasOneUse() || !store.isSimple())
        return nullptr;
    Type *type = change->getType();
    uint64_t bits = type->getScalarSizeInBits();
    bool is_integer = type->isIntegerTy() && bits >= 8 && bits <= 64 && isPowerOf2_64(bits) && integer_name(change->getOpcode());
    bool is_floating = (type->isFloatTy() || type->isDoubleTy()) && floating_name(change->getOpcode());
    if (!is_integer && !is_floating)
        return nullptr;
    for (unsigned index : {0u, 1u}) {
        auto *load = dyn_cast<LoadInst>(change->getOperand(index));
        if (!load || (index == 1 && !change->isCommutative()) || !load->hasOneUse() || !load->isSimple())
            continue;
        if (load->getPointerOperand() == store.getPointerOperand() && load->getAlign() == store.getAlign() && can_meet(*load, store))
            return load;
    }
    return nullptr;
}

} // namespace

SmallPtrSet<Instruction *, 16> Checker::find_changes(ArrayRef<Instruction *> accesses) {
    SmallPtrSet<Instruction *, 16> loads;
    if (!options.has_rseq)
        return loads;
    for (Instruction *access : accesses)
        if (auto *store = dyn_cast<StoreInst>(access))
            if (LoadInst *load = changed_in_place(*store)) {
                changes[store] = load;
                loads.insert(load);
            }
    return loads;
}

bool Checker::change_in_place(StoreInst &store) {
    LoadInst *load = changes.lookup(&store);
    if (!load)
        return false;
    auto *change = cast<BinaryOperator>(store.getValueOperand());
    Value *other = other_operand(*change, *load), *pointer = store.getPointerOperand();
    Type *type = change->getType();
    uint64_t bytes = layout.getTypeStoreSize(type);
    bool may_straddle = store.getAlign().value() < bytes;
    Site site{is_position_independent, options.lookup_cost};
    IRBuilder<> builder(&store);
    Value *table = builder.getInt64(StateTable), *offset = offset_of_rseq();
    if (type->isIntegerTy()) {
        std::string name = std::string(integer_name(change->getOpcode())) + width_letter(bytes) + " ";
        auto *constant = dyn_cast<ConstantInt>(other);
        bool is_immediate = constant && isInt<32>(constant->getSExtValue());
        std::string work = name + (is_immediate ? "$4" : operand(4, bytes)) + ", $1\n";
        assemble(builder, builder.getInt64Ty(), restartable(site, Look{"$1", unsigned(bytes), may_straddle}, work, 2),
                 std::string("=&r,*m,r,r,") + (is_immediate ? "i" : "r"), {pointer, offset, table, other}, {{0, type}});
    } else {
        std::string v = has_avx ? "v" : "", width = bytes == 8 ? "sd " : "ss ";
        std::string work = v + "mov" + width + "$2, $1\n" + v + floating_name(change->getOpcode()) + width + (has_avx ? "$5, $1, $1\n" : "$5, $1\n") +
                           v + "mov" + width + "$1, $2\n";
        assemble(builder, StructType::get(builder.getInt64Ty(), type), restartable(site, Look{"$2", unsigned(bytes), may_straddle}, work, 3),
                 "=&r,=&x,*m,r,r,x", {pointer, offset, table, other}, {{0, type}});
    }
    store.eraseFromParent();
    change->eraseFromParent();
    load->eraseFromParent();
    counts.stores++;
    counts.redundant++; // the load
    return true;
}

} // namespace comb
