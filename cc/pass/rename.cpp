#include "module.h"

#include "llvm/IR/GlobalAlias.h"

using namespace llvm;

namespace comb {

namespace {

const char Prefix[] = "comb_lib_";

// A name with a first byte of 1 stands for itself: `asm("name")` in C.
StringRef plain_name(const GlobalValue &value) {
    StringRef name = value.getName();
    name.consume_front("\1");
    return name;
}

void give_name(Module &module, GlobalValue &value, const Twine &name) {
    std::string text = name.str();
    if (GlobalValue *other = module.getNamedValue(text); other && other != &value) {
        value.replaceAllUsesWith(other);
        if (value.use_empty() && value.isDeclaration())
            value.eraseFromParent();
        return;
    }
    value.setName(text);
}

// A program may define what the library covers, its own `getline` say. Other files of the program call it by the library's name then:
// that name is here too, and the library's is weak.
void cover_definition(Module &module, GlobalValue &value) {
    std::string name = (Prefix + plain_name(value)).str();
    if (value.hasLocalLinkage() || value.hasAvailableExternallyLinkage() || module.getNamedValue(name))
        return;
    auto *alias = GlobalAlias::create(value.getValueType(), value.getAddressSpace(), value.getLinkage(), name, &value, &module);
    alias->setVisibility(value.getVisibility());
    if (auto *object = dyn_cast<GlobalObject>(&value); object && object->hasComdat())
        alias->setLinkage(GlobalValue::WeakODRLinkage);
}

} // namespace

void rename(Module &module, const Options &options) {
    SmallVector<GlobalValue *> covered;
    for (GlobalValue &value : module.global_values())
        if (value.hasName() && !value.getName().starts_with("llvm.") && options.covered.contains(plain_name(value)))
            covered.push_back(&value);
    for (GlobalValue *value : covered) {
        if (value->isDeclarationForLinker())
            give_name(module, *value, Prefix + plain_name(*value));
        else
            cover_definition(module, *value);
    }
    if (Function *main = module.getFunction("main"); main && !main->isDeclaration())
        give_name(module, *main, "comb_main");
}

} // namespace comb
