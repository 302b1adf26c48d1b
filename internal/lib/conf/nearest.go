package conf

import "math"

// Nearest returns the one of words that word was most likely meant to be, or ""
// if none is close: about one letter in three may differ.
func Nearest(word string, words []string) string {
	nearest, best := "", math.MaxInt
	for _, w := range words {
		if d := distance(word, w); d < best && d <= max(1, (max(len(word), len(w))+1)/3) {
			nearest, best = w, d
		}
	}
	return nearest
}

// distance counts the letters to insert, delete or replace to make b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
