// Imports a DLPack tensor as a tensor of libtorch.

#include <cstdio>
#include <exception>

#include <ATen/DLConvertor.h>

// Returns a new tensor that owns `managed`: it calls the deleter of `managed` when its storage is
// freed. On an error, returns null and writes the error's text to `message`.
extern "C" at::Tensor *feedwater_tensor_from_dlpack(DLManagedTensorVersioned *managed, char *message, size_t capacity) noexcept {
    try {
        return new at::Tensor(at::fromDLPackVersioned(managed));
    } catch (const std::exception &error) {
        std::snprintf(message, capacity, "%s", error.what());
        return nullptr;
    }
}
