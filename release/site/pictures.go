package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// pictures are the screenshots of the manual, each with the number of rows of pixels that are kept. The test of the web
// page makes them, and the rows below show only what the test needs.
var pictures = map[string]int{"explore-heatmap": 950, "flow": 900, "records-diagnosis": 740, "series": 330}

// largestPicture is the most bytes of a picture.
const largestPicture = 150_000

// writePictures makes the pictures of the manual from screenshots.
func writePictures(screenshots, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, rows := range pictures {
		for _, theme := range []string{"light", "dark"} {
			text, err := os.ReadFile(filepath.Join(screenshots, name+"-wide-"+theme+".png"))
			if err != nil {
				return fmt.Errorf("%w; TestPage of e2e makes it", err)
			}
			small, err := picture(text, rows)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := os.WriteFile(filepath.Join(out, name+"-"+theme+".png"), small, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// picture returns the upper rows of a PNG with 256 colours, which takes a third of the bytes.
func picture(text []byte, rows int) ([]byte, error) {
	whole, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	size := image.Rect(0, 0, whole.Bounds().Dx(), min(rows, whole.Bounds().Dy()))
	small := image.NewPaletted(size, palette(whole, size))
	known := map[color.Color]uint8{} // a search in the palette is slow
	for y := range size.Dy() {
		for x := range size.Dx() {
			c := whole.At(x, y)
			i, is := known[c]
			if !is {
				i = uint8(small.Palette.Index(c))
				known[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	if err == nil && b.Len() > largestPicture {
		err = fmt.Errorf("the picture takes %d bytes, more than %d: keep fewer rows", b.Len(), largestPicture)
	}
	return b.Bytes(), err
}

// palette returns the 256 most frequent colours. A page has few, beside those at the edges of letters.
func palette(img image.Image, size image.Rectangle) color.Palette {
	often := map[color.RGBA]int{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			often[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(often[b], often[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var p color.Palette
	for _, c := range all[:min(256, len(all))] {
		p = append(p, c)
	}
	return p
}
