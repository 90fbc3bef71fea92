/* Continues a text: cc -O3 @NAME@.c main.c -lm && ./a.out "In the beginning" [tokens] [temperature] [seed] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "@NAME@.h"

typedef struct {
    int length;
    const char *text;
    const char *shown; /* without control characters, which a terminal would obey; 0: the text itself */
} piece;

/* The texts of the tokens. */
static const piece pieces[@PREFIX@_TOKENS] = {
    @PIECES@
};
/* What is read before an empty prompt, and in the place of what no token is; -1: nothing. */
enum { first_token = @FIRST@, unknown_token = @UNKNOWN@, tokens_are_words = @WORDS@ };

static @NAME@_state state;
static @NAME@_scratch scratch;
static float output[@PREFIX@_OUTPUT_SIZE];
@READER@
/* The longest token with which the text starts. */
static int token_of(const char *text, size_t length, size_t *read)
{
    int token, best = -1;
    *read = 1;
    for (token = 0; token < @PREFIX@_TOKENS; token++) {
        const size_t size = (size_t)pieces[token].length;
        const int fits = tokens_are_words ? size == length : size <= length;
        if (size > 0 && fits && memcmp(pieces[token].text, text, size) == 0 && (best < 0 || size > *read)) {
            best = token;
            *read = size;
        }
    }
    if (tokens_are_words) *read = length;
    return best < 0 ? unknown_token : best;
}

static void show(int token)
{
    const piece *given = &pieces[token];
    if (tokens_are_words && strcmp(given->text, "<eos>") == 0) {
        putchar('\n');
        return;
    }
    if (given->shown) fputs(given->shown, stdout);
    else fwrite(given->text, 1, (size_t)given->length, stdout);
    if (tokens_are_words) putchar(' ');
}

/* A number from 0 up to 1, by a linear congruential generator of 64 bits. */
static double chance(void)
{
    static uint64_t bits;
    bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(bits >> 11) / 9007199254740992.0;
}

/* The next token, drawn from the probabilities of the logits; temperature 0 takes the most likely one. */
static int drawn(double temperature)
{
    double total = 0.0, left;
    int token, best = 0;
    for (token = 1; token < @PREFIX@_TOKENS; token++)
        if (output[token] > output[best]) best = token;
    if (temperature <= 0.0) return best;
    for (token = 0; token < @PREFIX@_TOKENS; token++)
        total += exp((output[token] - output[best]) / temperature);
    left = total * chance();
    for (token = 0; token < @PREFIX@_TOKENS - 1; token++) {
        left -= exp((output[token] - output[best]) / temperature);
        if (left < 0.0) break;
    }
    return token;
}

int main(int count, char **given)
{
    const char *prompt = count > 1 ? given[1] : "";
    int left = count > 2 ? atoi(given[2]) : 200;
    const double temperature = count > 3 ? atof(given[3]) : 0.8;
    int token = first_token, steps = count > 4 ? atoi(given[4]) : 1;
    int is_read = 0;
@LOAD@    for (; steps > 0; steps--) chance();
    @NAME@_init(&state);
    while (*prompt) {
        size_t length = strlen(prompt), read;
        if (tokens_are_words) {
            prompt += strspn(prompt, " \t\r\n");
            length = strcspn(prompt, " \t\r\n");
            if (length == 0) break;
        }
        token = token_of(prompt, length, &read);
        if (token < 0) {
            fprintf(stderr, "the vocabulary has no token for \"%.10s\"\n", prompt);
            return 1;
        }
        @NAME@_step(@WEIGHTS_GIVEN@&state, &scratch, token, output);
        is_read = 1;
        show(token);
        prompt += read;
    }
    if (!is_read) @NAME@_step(@WEIGHTS_GIVEN@&state, &scratch, token, output);
    for (; left > 0; left--) {
        token = drawn(temperature);
        show(token);
        @NAME@_step(@WEIGHTS_GIVEN@&state, &scratch, token, output);
    }
    putchar('\n');
    return 0;
}
