package files

import (
	"encoding/json"
	"fmt"
	"os"
)

// ReadJSON reads a file that holds one value in JSON.
func ReadJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
