/* The header gives the sizes of the structs: these types do not compile if it is wrong. */
typedef char @NAME@_state_has_its_size[sizeof(@NAME@_state) == @PREFIX@_STATE_BYTES ? 1 : -1];
typedef char @NAME@_scratch_has_its_size[sizeof(@NAME@_scratch) == @PREFIX@_SCRATCH_BYTES ? 1 : -1];
