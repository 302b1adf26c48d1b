package client_test

import (
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"github.com/freshet-io/freshet/client"
)

// docs/client.md shows the function serve, too.
func serve(address string) error {
	c, err := client.NewWithOptions(address, client.Options{
		Prefix:  "shop.",
		Tags:    []string{"env:prod"},
		OnError: func(err error) { log.Print("metrics wait: ", err) },
	})
	if err != nil {
		return err
	}
	hits := c.NewCounter("cache.hits", "cache:prices") // looked up once, for hot paths
	for _, took := range []time.Duration{12 * time.Millisecond, 7 * time.Millisecond} {
		c.Count("requests", 1, "route:/checkout", "code:200")
		c.Timing("request.time", took, "route:/checkout")
		hits.Add(1)
	}
	c.Gauge("cart.items", 3)
	c.Set("customers", "4711")
	return c.Close() // sends the rest, or says how much it could not send
}

func Example() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := serve(server.LocalAddr().String()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(read(server))

	// Unordered output:
	// shop.requests:2|c|#route:/checkout,code:200,env:prod
	// shop.request.time:12:7|ms|#route:/checkout,env:prod
	// shop.cache.hits:2|c|#cache:prices,env:prod
	// shop.cart.items:3|g|#env:prod
	// shop.customers:4711|s|#env:prod
}

// A counter whose name and tags are looked up once, for hot paths.
func ExampleClient_NewCounter() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	c, err := client.New(server.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	hits := c.NewCounter("shop.cache.hits", "cache:prices")
	for i := 0; i < 1000; i++ {
		hits.Add(1)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(read(server))
	// Output: shop.cache.hits:1000|c|#cache:prices
}

// Stats counts each call in exactly one of its fields.
func ExampleClient_Stats() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	c, err := client.New(server.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	c.Count("requests", 2)
	c.Count("requests", -1) // refused, since a counter never decreases
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	s := c.Stats()
	fmt.Println(s.Calls, "calls,", s.Sent, "sent,", s.Refused, "refused,", s.Held, "held")
	// Output: 2 calls, 1 sent, 1 refused, 0 held
}

// Tests, and services whose metrics are turned off, use Discard as their client.
func ExampleDiscard() {
	handle := func(c *client.Client) { c.Count("requests", 1) }
	handle(client.Discard)
	// Output:
}

// read returns the lines of the first packet that has lines of the example, without the client's own
// counts.
func read(server net.PacketConn) string {
	for buf := make([]byte, 1<<16); ; {
		n, _, err := server.ReadFrom(buf)
		if err != nil {
			log.Fatal(err)
		}
		var lines []string
		for _, line := range strings.Split(string(buf[:n]), "\n") {
			if strings.HasPrefix(line, "shop.") {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			return strings.Join(lines, "\n")
		}
	}
}
