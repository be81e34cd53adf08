#include "copies.h"
#include "privacy.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace comb {

namespace {

// Up to here single accesses cost less than a call.
constexpr uint64_t InlineBytesMost = 64;

bool is_shared_copy(const MemIntrinsic &copy, const Options &options) {
    bool has_shared_store = !is_private(copy.getRawDest());
    auto *transfer = dyn_cast<MemTransferInst>(&copy);
    bool has_shared_load = transfer && !is_private(transfer->getRawSource());
    return (has_shared_store && options.checks_stores()) || (has_shared_load && options.checks_loads());
}

// The widest piece that fits what is left.
uint64_t piece(uint64_t left) { return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

Value *at(IRBuilder<> &builder, Value *start, uint64_t offset) {
    return offset == 0 ? start : builder.CreateConstGEP1_64(builder.getInt8Ty(), start, offset);
}

// All loads before all stores, as memmove wants it.
void move_in_pieces(MemTransferInst &copy, uint64_t bytes) {
    IRBuilder<> builder(&copy);
    SmallVector<std::pair<Value *, uint64_t>> pieces;
    bool has_vectors = !copy.getFunction()->hasFnAttribute(Attribute::NoImplicitFloat);
    for (uint64_t offset = 0, size; offset < bytes; offset += size) {
        size = has_vectors && bytes - offset >= 16 ? 16 : piece(bytes - offset);
        Type *type = size == 16 ? cast<Type>(FixedVectorType::get(builder.getInt64Ty(), 2)) : builder.getIntNTy(unsigned(8 * size));
        Align alignment = commonAlignment(copy.getSourceAlign().valueOrOne(), offset);
        Value *from = at(builder, copy.getRawSource(), offset);
        pieces.emplace_back(builder.CreateAlignedLoad(type, from, alignment, copy.isVolatile()), offset);
    }
    for (auto [value, offset] : pieces) {
        Align alignment = commonAlignment(copy.getDestAlign().valueOrOne(), offset);
        builder.CreateAlignedStore(value, at(builder, copy.getRawDest(), offset), alignment, copy.isVolatile());
    }
}

void fill_in_pieces(MemSetInst &fill, uint64_t bytes) {
    IRBuilder<> builder(&fill);
    for (uint64_t offset = 0; offset < bytes; offset += piece(bytes - offset)) {
        Type *type = builder.getIntNTy(unsigned(8 * piece(bytes - offset)));
        Value *byte = builder.CreateZExt(fill.getValue(), type);
        Constant *ones = ConstantInt::get(type, APInt::getSplat(type->getIntegerBitWidth(), APInt(8, 1)));
        builder.CreateAlignedStore(builder.CreateMul(byte, ones), at(builder, fill.getRawDest(), offset),
                                   commonAlignment(fill.getDestAlign().valueOrOne(), offset), fill.isVolatile());
    }
}

void call_library(MemIntrinsic &copy) {
    IRBuilder<> builder(&copy);
    Module &module = *copy.getModule();
    Type *pointer = builder.getPtrTy(), *size = builder.getInt64Ty();
    Value *bytes = builder.CreateZExtOrTrunc(copy.getLength(), size);
    if (auto *fill = dyn_cast<MemSetInst>(&copy)) {
        FunctionCallee set = module.getOrInsertFunction("comb_lib_memset", pointer, pointer, builder.getInt32Ty(), size);
        builder.CreateCall(set, {fill->getRawDest(), builder.CreateZExt(fill->getValue(), builder.getInt32Ty()), bytes});
        return;
    }
    auto &transfer = cast<MemTransferInst>(copy);
    const char *name = isa<MemMoveInst>(copy) ? "comb_lib_memmove" : "comb_lib_memcpy";
    FunctionCallee move = module.getOrInsertFunction(name, pointer, pointer, pointer, size);
    builder.CreateCall(move, {transfer.getRawDest(), transfer.getRawSource(), bytes});
}

void cover(MemIntrinsic &copy) {
    auto *length = dyn_cast<ConstantInt>(copy.getLength());
    uint64_t bytes = length ? length->getZExtValue() : UINT64_MAX;
    if (bytes > InlineBytesMost)
        call_library(copy);
    else if (auto *fill = dyn_cast<MemSetInst>(&copy))
        fill_in_pieces(*fill, bytes);
    else
        move_in_pieces(cast<MemTransferInst>(copy), bytes);
    copy.eraseFromParent();
}

// The code generator copies a structure passed by value into the call's arguments with plain loads: let it find a private one.
unsigned copy_before_call(CallBase &call) {
    unsigned count = 0;
    for (unsigned index = 0; index < call.arg_size(); index++) {
        if (!call.isByValArgument(index) || is_private(call.getArgOperand(index)))
            continue;
        Type *type = call.getParamByValType(index);
        IRBuilder<> builder(&call);
        const DataLayout &layout = call.getModule()->getDataLayout();
        Align alignment = call.getParamAlign(index).value_or(layout.getABITypeAlign(type));
        auto *own = new AllocaInst(type, 0, nullptr, alignment, "by.value", &*call.getFunction()->getEntryBlock().begin());
        cover(*cast<MemIntrinsic>(builder.CreateMemCpy(own, alignment, call.getArgOperand(index), Align(1), layout.getTypeStoreSize(type))));
        call.setArgOperand(index, own);
        count++;
    }
    return count;
}

} // namespace

unsigned cover_copies(Function &function, const Options &options) {
    SmallVector<MemIntrinsic *> copies;
    SmallVector<CallBase *> calls;
    for (Instruction &instruction : instructions(function)) {
        if (auto *copy = dyn_cast<MemIntrinsic>(&instruction)) {
            if (is_shared_copy(*copy, options))
                copies.push_back(copy);
        } else if (auto *call = dyn_cast<CallBase>(&instruction); call && options.checks_loads()) {
            calls.push_back(call);
        }
    }
    unsigned count = unsigned(copies.size());
    for (MemIntrinsic *copy : copies)
        cover(*copy);
    for (CallBase *call : calls)
        count += copy_before_call(*call);
    return count;
}

} // namespace comb
