#include "checks.h"
#include "assembly.h"
#include "runtime.h"

#include "llvm/IR/InlineAsm.h"

using namespace llvm;

namespace comb {

namespace {

const char Clobbers[] = "~{memory},~{dirflag},~{fpsr},~{flags}";

bool has_feature(const Function &function, StringRef feature) {
    StringRef features = function.getFnAttribute("target-features").getValueAsString();
    SmallVector<StringRef> words;
    features.split(words, ',');
    return is_contained(words, feature);
}

} // namespace

bool is_access(const Instruction &instruction) {
    return isa<LoadInst>(instruction) || isa<StoreInst>(instruction) || isa<AtomicRMWInst>(instruction) || isa<AtomicCmpXchgInst>(instruction);
}

Value *pointer_of(Instruction &access) { return const_cast<Value *>(getLoadStorePointerOperand(&access)) ?: access.getOperand(0); }

Type *type_of(Instruction &access) {
    if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(&access))
        return exchange->getNewValOperand()->getType();
    if (auto *change = dyn_cast<AtomicRMWInst>(&access))
        return change->getValOperand()->getType();
    return getLoadStoreType(&access);
}

bool may_store(const Instruction &access) { return !isa<LoadInst>(access); }

Checker::Checker(Function &function, const Options &options, Counts &counts)
    : function(function), options(options), layout(function.getParent()->getDataLayout()), counts(counts),
      is_position_independent(comb::is_position_independent(*function.getParent())), has_avx(has_feature(function, "+avx")),
      has_avx2(has_feature(function, "+avx2")) {}

CallInst *Checker::assemble(IRBuilder<> &builder, Type *result, StringRef text, StringRef constraints, ArrayRef<Value *> operands,
                            ArrayRef<std::pair<unsigned, Type *>> memories) {
    SmallVector<Type *> types;
    for (Value *value : operands)
        types.push_back(value->getType());
    auto *type = FunctionType::get(result, types, false);
    CallInst *call = builder.CreateCall(InlineAsm::get(type, text, (constraints + (constraints.empty() ? "" : ",") + StringRef(Clobbers)).str(), true), operands);
    call->setDoesNotThrow();
    for (auto [index, element] : memories)
        call->addParamAttr(index, Attribute::get(builder.getContext(), Attribute::ElementType, element));
    return call;
}

void Checker::poll(IRBuilder<> &builder) {
    if (options.polls)
        assemble(builder, builder.getVoidTy(), comb::poll(Site{is_position_independent, 0}), "", {}, {});
}

void Checker::check(Instruction &access, bool is_in_batch) {
    if (auto *load = dyn_cast<LoadInst>(&access)) {
        if (options.checks_loads())
            check_load(*load, is_in_batch);
        return;
    }
    if (!options.checks_stores())
        return;
    if (auto *store = dyn_cast<StoreInst>(&access); store && options.has_rseq &&
                                                    (!store->isAtomic() || store->getOrdering() != AtomicOrdering::SequentiallyConsistent)) {
        check_store(*store, is_in_batch);
        return;
    }
    if (access.isAtomic())
        counts.atomics++;
    pin_around(access, pointer_of(access), type_of(access), true, is_in_batch);
}

void Checker::check_load(LoadInst &load, bool is_in_batch) {
    // What the optimiser knew of the value does not hold for the flag.
    load.dropUBImplyingAttrsAndUnknownMetadata({LLVMContext::MD_tbaa, LLVMContext::MD_alias_scope, LLVMContext::MD_noalias, LLVMContext::MD_nontemporal});
    Type *type = load.getType();
    uint64_t bits = layout.getTypeSizeInBits(type).getFixedValue();
    bool is_whole = bits == layout.getTypeStoreSizeInBits(type).getFixedValue() && isPowerOf2_64(bits);
    Value *checked = nullptr;
    bool is_small_vector = type->isVectorTy() && (bits == 32 || bits == 64);
    if (is_whole && (type->isFloatTy() || type->isDoubleTy() || is_small_vector) && load.getAlign().value() < bits / 8) {
        // Both ends must be looked at, which general registers are for.
        IRBuilder<> builder(&load);
        LoadInst *general = builder.CreateAlignedLoad(builder.getIntNTy(unsigned(bits)), load.getPointerOperand(), load.getAlign(), load.isVolatile());
        load.replaceAllUsesWith(builder.CreateBitCast(general, type));
        load.eraseFromParent();
        check_general(*general, is_in_batch);
        counts.loads++;
        return;
    }
    if (is_whole && (type->isIntegerTy() || type->isPointerTy()) && bits <= 64)
        checked = check_general(load, is_in_batch);
    else if (is_whole && (type->isFloatTy() || type->isDoubleTy() || is_small_vector))
        checked = check_floating(load, is_in_batch);
    else if (type->isVectorTy() && (bits == 128 || (bits == 256 && has_avx2)) && type->getScalarSizeInBits() >= 8)
        checked = check_vector(load, is_in_batch);
    if (!checked) {
        pin_around(load, load.getPointerOperand(), type, false, is_in_batch);
        return;
    }
    counts.loads++;
}

void Checker::replace_load(LoadInst &load, Instruction *first_use, Value *checked) {
    load.replaceUsesWithIf(checked, [&](Use &use) { return use.getUser() != first_use; });
}

Value *Checker::check_general(LoadInst &load, bool is_in_batch) {
    uint64_t bytes = layout.getTypeStoreSize(load.getType());
    IRBuilder<> builder(load.getNextNode());
    builder.SetCurrentDebugLocation(load.getDebugLoc());
    bool is_narrow = bytes < 4;
    Value *value = is_narrow ? builder.CreateZExt(&load, builder.getInt32Ty()) : &load;
    Instruction *first_use = is_narrow ? cast<Instruction>(value) : nullptr;
    Site site{is_position_independent, options.lookup_cost};
    Kind kind = is_in_batch ? Kind::LoadInBatch : Kind::Load;
    bool may_straddle = load.getAlign().value() < bytes;
    // The low half alone tells nearly as much as the whole, and its constant fits in the instruction.
    std::string compare, outputs = "=r,0,*m", memory = "$2", scratch = "${0:q}";
    if (may_straddle) {
        outputs = "=r,=&r,0,*m";
        memory = "$3";
        compare = "cmpb $$0xf1, ${0:b}\nje .Lcomb_miss${:uid}\nmov" + std::string(bytes == 8 ? "q $0, $1" : "l ${0:k}, ${1:k}") + "\nshr" + (bytes == 8 ? "q" : "l") + " $$" +
                  std::to_string(8 * bytes - 8) + ", " + operand(1, bytes == 8 ? 8 : 4) + "\ncmpl $$0xf1, ${1:k}\nje .Lcomb_miss${:uid}\n";
    } else {
        compare = "cmpl $$" + std::to_string(is_narrow ? Flag >> (32 - 8 * bytes) : 0) + ", ${0:k}\nje .Lcomb_miss${:uid}\n";
        if (!is_narrow)
            compare = "cmpl $$-235802127, ${0:k}\nje .Lcomb_miss${:uid}\n";
    }
    std::string again = bytes == 1   ? "movzbl " + memory + ", ${0:k}\n"
                        : bytes == 2 ? "movzwl " + memory + ", ${0:k}\n"
                                     : std::string("mov") + width_letter(bytes) + " " + memory + ", " + operand(0, bytes) + "\n";
    std::string text = flag_check(site, compare, memory, scratch, again, unsigned(bytes), kind);
    Type *result = may_straddle ? cast<Type>(StructType::get(value->getType(), builder.getInt64Ty())) : value->getType();
    CallInst *call = assemble(builder, result, text, outputs, {value, load.getPointerOperand()}, {{1, load.getType()}});
    if (!first_use)
        first_use = call;
    Value *checked = may_straddle ? builder.CreateExtractValue(call, 0) : call;
    if (!is_narrow) {
        replace_load(load, first_use, checked);
        return checked;
    }
    // Users that extend find the wide value; a truncation is for the others.
    Value *narrow = builder.CreateTrunc(checked, load.getType());
    for (User *user : make_early_inc_range(load.users())) {
        auto *extension = dyn_cast<ZExtInst>(user);
        if (!extension || extension == first_use)
            continue;
        IRBuilder<> there(extension);
        extension->replaceAllUsesWith(there.CreateZExtOrTrunc(checked, extension->getType()));
        extension->eraseFromParent();
    }
    replace_load(load, first_use, narrow);
    return narrow;
}

Value *Checker::check_floating(LoadInst &load, bool is_in_batch) {
    uint64_t bytes = layout.getTypeStoreSize(load.getType());
    IRBuilder<> builder(load.getNextNode());
    builder.SetCurrentDebugLocation(load.getDebugLoc());
    Type *carrier = bytes == 8 ? builder.getDoubleTy() : builder.getFloatTy();
    Value *value = builder.CreateBitCast(&load, carrier);
    Site site{is_position_independent, options.lookup_cost};
    std::string v = has_avx ? "v" : "";
    std::string compare = v + "movd $0, ${1:k}\ncmpl $$-235802127, ${1:k}\nje .Lcomb_miss${:uid}\n";
    std::string again = v + (bytes == 8 ? "movsd" : "movss") + " $3, $0\n";
    std::string text = flag_check(site, compare, "$3", "$1", again, unsigned(bytes), is_in_batch ? Kind::LoadInBatch : Kind::Load);
    CallInst *call = assemble(builder, StructType::get(carrier, builder.getInt64Ty()), text, "=x,=&r,0,*m",
                              {value, load.getPointerOperand()}, {{1, load.getType()}});
    Value *checked = builder.CreateBitCast(builder.CreateExtractValue(call, 0), load.getType());
    replace_load(load, value == &load ? call : cast<Instruction>(value), checked);
    return checked;
}

Value *Checker::check_vector(LoadInst &load, bool is_in_batch) {
    uint64_t bytes = layout.getTypeStoreSize(load.getType());
    IRBuilder<> builder(load.getNextNode());
    builder.SetCurrentDebugLocation(load.getDebugLoc());
    Type *carrier = FixedVectorType::get(builder.getInt64Ty(), unsigned(bytes / 8));
    Value *value = builder.CreateBitCast(&load, carrier);
    // A block is flagged in aligned words of eight bytes, so some aligned piece of the load's own alignment is the flag whole.
    const char *compare_lanes = load.getAlign().value() >= 4 ? "pcmpeqd" : load.getAlign().value() == 2 ? "pcmpeqw" : "pcmpeqb";
    Module &module = *function.getParent();
    GlobalVariable *flags = module.getGlobalVariable("comb_flags", true);
    if (!flags) {
        Constant *bytes_of_flag = ConstantDataVector::getSplat(64, builder.getInt8(0xf1));
        flags = new GlobalVariable(module, bytes_of_flag->getType(), true, GlobalValue::PrivateLinkage, bytes_of_flag, "comb_flags");
        flags->setAlignment(Align(64));
        flags->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
    }
    Site site{is_position_independent, options.lookup_cost};
    // $0 value, $1 general, $2 vector, $3 = $0, $4 memory, $5 flags.
    std::string compare = has_avx ? std::string("v") + compare_lanes + " $5, $0, $2\nvpmovmskb $2, ${1:k}\n"
                                  : std::string("movdqa $0, $2\n") + compare_lanes + " $5, $2\npmovmskb $2, ${1:k}\n";
    compare += "testl ${1:k}, ${1:k}\njne .Lcomb_miss${:uid}\n";
    std::string again = has_avx ? "vmovups $4, $0\n" : "movups $4, $0\n";
    std::string text = flag_check(site, compare, "$4", "$1", again, unsigned(bytes), is_in_batch ? Kind::LoadInBatch : Kind::Load);
    CallInst *call = assemble(builder, StructType::get(carrier, builder.getInt64Ty(), carrier), text, "=x,=&r,=&x,0,*m,*m",
                              {value, load.getPointerOperand(), flags}, {{1, load.getType()}, {2, carrier}});
    Value *checked = builder.CreateBitCast(builder.CreateExtractValue(call, 0), load.getType());
    replace_load(load, value == &load ? call : cast<Instruction>(value), checked);
    return checked;
}

Value *Checker::offset_of_rseq() {
    if (rseq_offset)
        return rseq_offset;
    Module &module = *function.getParent();
    GlobalVariable *offset = module.getGlobalVariable("comb_rseq_offset");
    IRBuilder<> builder(&*function.getEntryBlock().getFirstInsertionPt());
    if (!offset) {
        offset = new GlobalVariable(module, builder.getInt64Ty(), false, GlobalValue::ExternalLinkage, nullptr, "comb_rseq_offset");
        offset->setDSOLocal(!is_position_independent);
    }
    return rseq_offset = builder.CreateLoad(builder.getInt64Ty(), offset, "rseq");
}

bool Checker::has_move(Type *type) {
    uint64_t bits = layout.getTypeSizeInBits(type).getFixedValue();
    if (type->isVectorTy() && bits > 64)
        return type->getScalarSizeInBits() >= 8 && (bits == 128 || (bits == 256 && has_avx));
    if (bits != layout.getTypeStoreSizeInBits(type).getFixedValue() || !isPowerOf2_64(bits) || bits > 64)
        return false;
    return type->isIntegerTy() || type->isPointerTy() || type->isFloatTy() || type->isDoubleTy() || (type->isVectorTy() && bits >= 32);
}

Checker::Move Checker::move_of(IRBuilder<> &builder, StoreInst &store, unsigned value_operand, const std::string &memory) {
    Value *value = store.getValueOperand();
    Type *type = value->getType();
    uint64_t bytes = layout.getTypeStoreSize(type).getFixedValue();
    std::string v = has_avx ? "v" : "", number = "$" + std::to_string(value_operand), rest = ", " + memory + "\n";
    if (type->isIntegerTy() || type->isPointerTy()) {
        std::string name = std::string("mov") + width_letter(bytes) + " ";
        if (isa<ConstantPointerNull>(value))
            value = builder.getInt64(0);
        if (auto *constant = dyn_cast<ConstantInt>(value); constant && isInt<32>(constant->getSExtValue()))
            return {name + number + rest, "i", value};
        return {name + operand(value_operand, bytes) + rest, bytes == 1 ? "q" : "r", value};
    }
    if (bytes <= 8) {
        value = builder.CreateBitCast(value, bytes == 8 ? builder.getDoubleTy() : builder.getFloatTy());
        return {v + (bytes == 8 ? "movsd " : "movss ") + number + rest, "x", value};
    }
    value = builder.CreateBitCast(value, FixedVectorType::get(builder.getFloatTy(), unsigned(bytes / 4)));
    return {v + "movups " + number + rest, "x", value};
}

void Checker::check_store(StoreInst &store, bool is_in_batch) {
    if (change_in_place(store))
        return;
    IRBuilder<> builder(&store);
    Type *type = store.getValueOperand()->getType();
    if (!has_move(type)) {
        pin_around(store, store.getPointerOperand(), type, true, is_in_batch);
        return;
    }
    counts.stores++;
    Move move = move_of(builder, store, 4, "$1");
    Site site{is_position_independent, options.lookup_cost};
    uint64_t bytes = layout.getTypeStoreSize(type).getFixedValue();
    std::string text = restartable(site, Look{"$1", unsigned(bytes), store.getAlign().value() < bytes}, move.text, 2);
    assemble(builder, builder.getInt64Ty(), text, "=&r,*m,r,r," + move.constraint,
             {store.getPointerOperand(), offset_of_rseq(), builder.getInt64(StateTable), move.value}, {{0, type}});
    store.eraseFromParent();
}

SmallPtrSet<Instruction *, 16> Checker::check_series(ArrayRef<Instruction *> accesses) {
    SmallPtrSet<Instruction *, 16> stores, checked;
    if (!options.has_rseq || !options.checks_stores())
        return checked;
    for (Instruction *access : accesses) {
        auto *store = dyn_cast<StoreInst>(access);
        if (!store || !store->isSimple() || changes.contains(store))
            continue;
        if (has_move(store->getValueOperand()->getType()))
            stores.insert(store);
    }
    for (Series &series : find_series(function, stores)) {
        check_together(series);
        for (const SeriesStore &member : series.stores)
            checked.insert(member.store);
    }
    return checked;
}

void Checker::check_together(const Series &series) {
    IRBuilder<> builder(series.stores.back().store);
    SmallVector<Value *> operands{offset_of_rseq(), builder.getInt64(StateTable)};
    std::string constraints = "=&r,r,r", work;
    SmallVector<Look> looks;
    for (const SeriesBlock &block : series.blocks) {
        unsigned bytes = unsigned(block.high - block.low);
        looks.push_back({"($" + std::to_string(operands.size() + 1) + ")", bytes, block.lowest_alignment.value() < bytes});
        operands.push_back(block.lowest);
        constraints += ",r";
    }
    for (const SeriesStore &member : series.stores) {
        int64_t offset = member.distance - series.blocks[member.block].low;
        unsigned value_operand = unsigned(operands.size()) + 1;
        // The blocks' addresses are the operands behind the state table.
        std::string memory = (offset ? std::to_string(offset) : "") + "($" + std::to_string(3 + member.block) + ")";
        Move move = move_of(builder, *member.store, value_operand, memory);
        work += move.text;
        operands.push_back(move.value);
        constraints += "," + move.constraint;
    }
    Site site{is_position_independent, options.lookup_cost};
    assemble(builder, builder.getInt64Ty(), restartable(site, looks, work, 1), constraints, operands, {});
    counts.stores += unsigned(series.blocks.size());
    counts.redundant += unsigned(series.stores.size() - series.blocks.size());
    counts.series++;
    for (const SeriesStore &member : series.stores)
        member.store->eraseFromParent();
}

} // namespace comb
