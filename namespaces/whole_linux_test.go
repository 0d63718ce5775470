package namespaces_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"netemd/namespaces"
)

func TestWhole(t *testing.T) {
	torn := fmt.Errorf("links: %w", namespaces.ErrTorn)
	for name, c := range map[string]struct {
		// answer is what the nth question is answered with, from 1.
		answer func(n int) ([]int, error)
		asked  int
		took   time.Duration
		want   error
	}{
		"at once":         {func(n int) ([]int, error) { return []int{n}, nil }, 1, 0, nil},
		"torn 9 times":    {func(n int) ([]int, error) { return []int{n}, map[bool]error{true: torn}[n < 10] }, 10, (1 + 2 + 4 + 8 + 16 + 32 + 64 + 100 + 100) * time.Millisecond, nil},
		"an error":        {func(int) ([]int, error) { return nil, fs.ErrPermission }, 1, 0, fs.ErrPermission},
		"torn, and wrong": {func(n int) ([]int, error) { return nil, map[bool]error{true: torn, false: fs.ErrPermission}[n < 2] }, 2, time.Millisecond, fs.ErrPermission},
		// 127 ms of doubling pauses, and one of 100 ms until 5 s are over.
		"always torn": {func(n int) ([]int, error) { return []int{n}, torn }, 1 + 7 + 49, 5027 * time.Millisecond, namespaces.ErrTorn},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				got, err := namespaces.Whole(func() ([]int, error) {
					asked++
					return c.answer(asked)
				})
				if took := time.Since(began); asked != c.asked || took != c.took || !errors.Is(err, c.want) {
					t.Errorf("asked %d times in %v: %v; want %d in %v: %v", asked, took, err, c.asked, c.took, c.want)
				}
				if (err == nil) != (len(got) == 1) {
					t.Errorf("%v beside %v", got, err)
				}
			})
		})
	}
}
