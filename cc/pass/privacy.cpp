#include "privacy.h"

#include "llvm/Analysis/CaptureTracking.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace comb {

namespace {

// Deep enough for what inlining leaves of nested structures.
constexpr unsigned LookupDepth = 12;

bool is_private_object(const Value *object) {
    if (isa<AllocaInst>(object))
        return true;
    if (auto *variable = dyn_cast<GlobalVariable>(object))
        return variable->isConstant() || variable->isThreadLocal();
    if (auto *argument = dyn_cast<Argument>(object))
        return argument->hasByValAttr();
    if (auto *call = dyn_cast<IntrinsicInst>(object))
        return call->getIntrinsicID() == Intrinsic::threadlocal_address;
    return isa<Function>(object);
}

// A comparison, which vectorised loops make of their arrays, gives nobody a way to the object.
struct EscapeTracker : CaptureTracker {
    bool has_escaped = false;
    void tooManyUses() override { has_escaped = true; }
    bool captured(const Use *use) override { return has_escaped = !isa<ICmpInst>(use->getUser()); }
};

bool has_type_named(Type *type, StringRef name) {
    while (auto *array = dyn_cast<ArrayType>(type))
        type = array->getElementType();
    auto *structure = dyn_cast<StructType>(type);
    return structure && structure->hasName() && structure->getName().starts_with(name);
}

} // namespace

bool is_private(const Value *pointer) {
    if (pointer->getType()->getPointerAddressSpace() != 0)
        return true;
    SmallVector<const Value *, 4> objects;
    getUnderlyingObjects(pointer, objects, nullptr, LookupDepth);
    return all_of(objects, is_private_object);
}

bool must_be_shared(const AllocaInst &object) {
    // The C library writes these by itself, for the thread that owns them.
    if (has_type_named(object.getAllocatedType(), "struct.__va_list_tag") ||
        has_type_named(object.getAllocatedType(), "struct.__jmp_buf_tag"))
        return false;
    if (object.isUsedWithInAlloca() || object.isSwiftError())
        return false;
    EscapeTracker tracker;
    PointerMayBeCaptured(&object, &tracker);
    return tracker.has_escaped;
}

} // namespace comb
