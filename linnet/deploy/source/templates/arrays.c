typedef struct {
    @MEMBERS@
} @NAME@_weights;

static const @NAME@_weights all_weights = {
#include "@NAME@_weights.h"
};

static const @NAME@_weights *const weights = &all_weights;
