/* Vectors are read faster if they do not cross a line of the cache. */
#ifdef __GNUC__
#define ALIGNED __attribute__((aligned(64)))
#else
#define ALIGNED
#endif

typedef struct {
    @MEMBERS@
} @NAME@_weights;

static const @NAME@_weights all_weights ALIGNED = {
#include "@NAME@_weights.h"
};

static const @NAME@_weights *const weights = &all_weights;
