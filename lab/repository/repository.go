// Package repository finds the directory of Freshet's repository. The lab works there, but may be
// started in any directory below: `go run -C lab .` starts it in lab.
package repository

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dir returns the first directory, from the current directory upward, that has Freshet's sources.
func Dir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "freshet", "main.go")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not below Freshet's repository", start)
		}
	}
}

// Enter changes to the repository's directory.
func Enter() error {
	dir, err := Dir()
	if err != nil {
		return err
	}
	return os.Chdir(dir)
}
