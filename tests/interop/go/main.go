// A long-lived peer around the Go client: one JSON command a line on standard input, one JSON answer a
// line on standard output, in order. A command names its operation in "op"; an answer holds "ok" or "error".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type command map[string]any

type operation func(command) (any, error)

func main() {
	rlog.SetLogLevel("error")
	ops := map[string]operation{"ping": func(command) (any, error) { return "pong", nil }}
	producers := newProducers()
	producers.register(ops)
	newTransactions().register(ops)
	newPushConsumers(producers).register(ops)
	newPullConsumers().register(ops)
	registerAdmin(ops)

	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	out := bufio.NewWriter(os.Stdout)
	for in.Scan() {
		if err := json.NewEncoder(out).Encode(answer(ops, in.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out.Flush()
	}
}

func answer(ops map[string]operation, line []byte) (reply map[string]any) {
	defer func() {
		if broken := recover(); broken != nil {
			reply = map[string]any{"error": map[string]any{"class": "panic", "text": fmt.Sprint(broken)}}
		}
	}()
	var given command
	if err := json.Unmarshal(line, &given); err != nil {
		return map[string]any{"error": described(err)}
	}
	op, known := ops[given.text("op", "")]
	if !known {
		return map[string]any{"error": map[string]any{
			"class": "UnsupportedOperationException", "text": given.text("op", "")}}
	}
	result, err := op(given)
	if err != nil {
		return map[string]any{"error": described(err)}
	}
	return map[string]any{"ok": result}
}
