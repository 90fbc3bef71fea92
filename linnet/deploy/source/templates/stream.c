/* Reads a step from each line of standard input and prints the answer after the last:

   cc -O3 @NAME@.c main.c && ./a.out < values.csv

   A line has @FIELDS@, separated by commas, semicolons or blanks.
   A number that is missing is empty or nan. A first line with names is skipped. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "@NAME@.h"

enum { has_time = @HAS_TIME@, has_class = @HAS_CLASS@, numbers = @NUMBERS@, rows = @ROWS@, columns = @COLUMNS@ };

static const char header[] = @HEADER@;
static const char *const names[rows] = {
    @ROW_NAMES@
};
static const char *const labels[columns] = {
    @LABELS@
};

static @NAME@_state state;
static @NAME@_scratch scratch;
static float input[@PREFIX@_INPUT_SIZE], output[@PREFIX@_OUTPUT_SIZE];
@READER@
/* Days from 1970-01-01 to a date. Years begin in March: the last day is that of leap years. */
static long days_of(int year, int month, int day)
{
    const long y = month > 2 ? year : year - 1L, era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
    const long of_year = (153L * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* The next field, after what is left of this one, such as the Z of a time. */
static const char *after_field(const char *text)
{
    while (*text && !strchr(" ,;\t\r\n", *text)) text++;
    while (*text == ' ') text++;
    return *text == ',' || *text == ';' || *text == '\t' ? text + 1 : text;
}

/* The rest of a line after its time, such as 2024-01-31 or 2024-01-31T23:45:00, or NULL: it has none. */
static const char *read_time(const char *line)
{
    int year, month, day = 1, hour = 0, minute = 0, second = 0, used = 0;
    if (sscanf(line, " %d-%d%n", &year, &month, &used) != 2 || month < 1 || month > 12) return NULL;
    line += used;
    if (sscanf(line, "-%d%n", &day, &used) == 1) line += used;
    if ((*line == 'T' || *line == ' ') && sscanf(line + 1, "%d:%d%n", &hour, &minute, &used) == 2) {
        line += 1 + used;
        if (sscanf(line, ":%d%n", &second, &used) == 1) line += used;
    }
    input[numbers] = (float)days_of(year, month, day);
    input[numbers + 1] = (float)(hour * 3600L + minute * 60L + second);
    return after_field(line);
}

static void read_numbers(const char *text)
{
    int i;
    for (i = 0; i < numbers; i++) {
        char *end;
        const double number = strtod(text, &end);
        input[i] = end == text ? NAN : (float)number;
        text = after_field(end);
    }
}

static int starts_with_name(const char *line)
{
    return isalpha((unsigned char)*line) && tolower((unsigned char)*line) != 'n';
}

/* The column of the largest number. */
static int largest(const float *row)
{
    int column, best = 0;
    for (column = 1; column < columns; column++)
        if (row[column] > row[best]) best = column;
    return best;
}

int main(void)
{
    static char line[@LINE@];
    int row, column;
    long count = 0, steps = 0;
@LOAD@    @NAME@_init(&state);
    while (fgets(line, sizeof line, stdin)) {
        const char *rest = has_time ? read_time(line) : line;
        count++;
        if (count == 1 && (!rest || (!has_time && starts_with_name(line)))) continue;
        if (!rest) {
            fprintf(stderr, "line %ld starts with no time such as 2024-01-31 or 2024-01-31T23:45\n", count);
            return 1;
        }
        read_numbers(rest);
        @NAME@_step(@WEIGHTS_GIVEN@&state, &scratch, input, output);
        steps++;
    }
    if (steps == 0) {
        fprintf(stderr, "standard input has no line with numbers\n");
        return 1;
    }
    puts(header);
    for (row = 0; row < rows; row++) {
        fputs(names[row], stdout);
        if (has_class) printf("%s,", labels[largest(output + row * columns)]);
        for (column = 0; column < columns; column++)
            printf("%s%.9g", column > 0 ? "," : "", output[row * columns + column]);
        putchar('\n');
    }
    return 0;
}
