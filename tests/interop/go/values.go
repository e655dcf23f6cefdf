package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const longestShownBody = 256

func (c command) text(name, fallback string) string {
	if value, ok := c[name].(string); ok {
		return value
	}
	return fallback
}

func (c command) number(name string, fallback int64) int64 {
	if value, ok := c[name].(float64); ok {
		return int64(value)
	}
	return fallback
}

func (c command) flag(name string) bool {
	value, _ := c[name].(bool)
	return value
}

func (c command) nameServer() primitive.NamesrvAddr {
	return primitive.NamesrvAddr{c.text("name_server", "")}
}

func (c command) timeout() time.Duration {
	return time.Duration(c.number("timeout_ms", 0)) * time.Millisecond
}

func (c command) queue() *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: c.text("topic", ""),
		BrokerName: c.text("broker", "broker-a"), QueueId: int(c.number("queue_id", 0))}
}

// A body is given as text; "fill" makes it that many bytes long by repeating the text.
func (c command) messages() []*primitive.Message {
	var all []*primitive.Message
	for _, one := range c["messages"].([]any) {
		from := command(one.(map[string]any))
		body := []byte(from.text("body", ""))
		if fill := int(from.number("fill", 0)); fill > 0 {
			body = []byte(strings.Repeat(string(body), fill/len(body)+1)[:fill])
		}
		if noise := from.number("noise", 0); noise > 0 {
			body = make([]byte, noise)
			rand.New(rand.NewSource(7)).Read(body) // no compression makes it shorter
		}
		message := primitive.NewMessage(c.text("topic", ""), body)
		message.Flag = int32(from.number("flag", 0))
		if tags := from.text("tags", ""); tags != "" {
			message.WithTag(tags)
		}
		if keys := from.text("keys", ""); keys != "" {
			message.WithKeys(strings.Split(keys, " "))
		}
		if level := from.number("delay_level", 0); level > 0 {
			message.WithDelayTimeLevel(int(level))
		}
		if key := from.text("sharding_key", ""); key != "" {
			message.WithShardingKey(key)
		}
		for _, kind := range []string{"properties", "system_properties"} {
			properties, _ := from[kind].(map[string]any)
			for name, value := range properties {
				message.WithProperty(name, fmt.Sprint(value))
			}
		}
		all = append(all, message)
	}
	return all
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	primitive.SendUnknownError:      "UNKNOWN_ERROR",
}

func sent(result *primitive.SendResult) map[string]any {
	return map[string]any{
		"status": statusNames[result.Status], "queue_id": result.MessageQueue.QueueId,
		"broker": result.MessageQueue.BrokerName, "queue_offset": result.QueueOffset,
		"unique_id": result.MsgID, "offset_id": result.OffsetMsgID,
		"transaction_id": result.TransactionID,
	}
}

func received(message *primitive.MessageExt) map[string]any {
	return map[string]any{
		"topic": message.Topic, "body": shown(message.Body), "queue_id": message.Queue.QueueId,
		"queue_offset": message.QueueOffset, "flag": message.Flag, "sys_flag": message.SysFlag,
		"reconsume_times": message.ReconsumeTimes, "unique_id": message.MsgId,
		"born_at": message.BornTimestamp, "stored_at": message.StoreTimestamp,
		"at": time.Now().UnixMilli(), "properties": message.GetProperties(),
	}
}

func allReceived(messages []*primitive.MessageExt) []any {
	all := []any{}
	for _, message := range messages {
		all = append(all, received(message))
	}
	return all
}

// Long bodies travel as their length and digest.
func shown(body []byte) string {
	if len(body) <= longestShownBody {
		return string(body)
	}
	digest := sha256.Sum256(body)
	return fmt.Sprintf("%d bytes %x", len(body), digest[:8])
}

func described(err error) map[string]any {
	out := map[string]any{"class": strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), "text": err.Error()}
	var refused primitive.MQBrokerErr
	if errors.As(err, &refused) {
		out["class"] = "MQBrokerErr"
		out["code"] = refused.ResponseCode
	}
	return out
}
