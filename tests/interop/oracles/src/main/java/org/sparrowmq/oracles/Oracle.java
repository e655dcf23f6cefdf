package org.sparrowmq.oracles;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/** Reads one JSON object a line and answers each with one JSON line, so that Python can ask Apache's classes. */
public final class Oracle {
    private Oracle() {
    }

    public static void main(String[] args) throws Exception {
        Function<JSONObject, Object> answer;
        switch (args.length == 1 ? args[0] : "") {
            case "sql92":
                answer = Sql92Oracle::answer;
                break;
            case "strategies":
                answer = StrategyOracle::answer;
                break;
            default:
                throw new IllegalArgumentException("one argument expected: sql92 or strategies");
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print(JSON.toJSONString(answer.apply(JSON.parseObject(line))));
            out.print('\n');
        }
        out.flush();
        System.exit(0);
    }
}
